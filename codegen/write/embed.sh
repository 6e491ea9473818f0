#!/bin/sh
# embed.sh VERSION FILE... - prints a C file with the bytes of each file: the table of output.h.  The Makefile stands in the output
# itself, run.sh in runtime/, pipe.xsd beside pipe.xml, files of a room under runtime/ and its name, those of the runtime under their folder in it.  @VERSION@ in the Makefile becomes
# the version.
export LC_ALL=C
version=$1; shift
printf '#include "codegen/write/output.h"\n\n'
i=0
for f in "$@"; do
    printf 'static const unsigned char file%d[] = {\n' $i
    case $f in */pipeline.mk) sed "s/@VERSION@/$version/" "$f" ;; *) cat "$f" ;; esac | od -An -v -tu1 | sed 's/  */,/g; s/^,//; s/$/,/'
    printf '0};\n'
    i=$((i + 1))
done
printf '\nconst EmbedFile embed_file[] = {\n'
i=0
for f in "$@"; do
    case $f in */pipeline.mk) name=Makefile ;; */run.sh) name=runtime/run.sh ;; */pipe.xsd) name=pipe.xsd ;; *) name=runtime/${f#runtime/} ;; esac
    printf '    {"%s", file%d, sizeof file%d - 1},\n' "$name" $i $i
    i=$((i + 1))
done
printf '};\nconst int embed_count = %d;\n' $i
