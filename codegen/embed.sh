#!/bin/sh
# embed.sh FILE... - prints a C file with the bytes of each file: the table of codegen/output.h.
export LC_ALL=C
printf '#include "codegen/output.h"\n\n'
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
    printf '    {"%s", file%d, sizeof file%d - 1},\n' "${f##*/}" $i $i
    i=$((i + 1))
done
printf '};\nconst int embed_count = %d;\n' $i
