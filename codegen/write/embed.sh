#!/bin/sh
# embed.sh FILE... - prints a C file with the bytes of each file: the table of output.h.  Files of a room stand under its name, those of
# the runtime under their folder in it.
export LC_ALL=C
printf '#include "codegen/write/output.h"\n\n'
i=0
for f in "$@"; do
    printf 'static const unsigned char file%d[] = {\n' $i
    od -An -v -tu1 "$f" | sed 's/  */,/g; s/^,//; s/$/,/'
    printf '0};\n'
    i=$((i + 1))
done
printf '\nconst EmbedFile embed_file[] = {\n'
i=0
for f in "$@"; do
    case $f in */pipeline.mk) name=pipeline.mk ;; *) name=${f#runtime/} ;; esac
    printf '    {"%s", file%d, sizeof file%d - 1},\n' "$name" $i $i
    i=$((i + 1))
done
printf '};\nconst int embed_count = %d;\n' $i
