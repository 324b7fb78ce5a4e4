/* bzip2 ROUNDS: compresses and decompresses text in memory, as SPEC's 256.bzip2 does, with bzip2's library. */
#include "bzlib.h"
#include "text.h"
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 3000000 };

void bz_internal_error(int code) { exit(code); }

int main(int count, char **words) {
    char *text = malloc(LENGTH), *packed = malloc(LENGTH * 2), *again = malloc(LENGTH);
    make_text((unsigned char *)text, LENGTH);
    for (int round = count > 1 ? atoi(words[1]) : 1; round > 0; round--) {
        unsigned size = LENGTH * 2, length = LENGTH;
        if (BZ2_bzBuffToBuffCompress(packed, &size, text, LENGTH, 9, 0, 0) != BZ_OK) return 1;
        if (BZ2_bzBuffToBuffDecompress(again, &length, packed, size, 0, 0) != BZ_OK) return 1;
        if (memcmp(text, again, LENGTH) != 0) return 1;
    }
    return 0;
}
