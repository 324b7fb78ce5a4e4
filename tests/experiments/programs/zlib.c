/* zlib ROUNDS [TIMES]: compresses text in memory with zlib, and decompresses it TIMES (4) times. */
#include "zlib.h"
#include "text.h"
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 2000000 };

int main(int count, char **words) {
    unsigned char *text = malloc(LENGTH), *packed = malloc(LENGTH * 2), *again = malloc(LENGTH);
    make_text(text, LENGTH);
    int times = count > 2 ? atoi(words[2]) : 4;
    for (int round = count > 1 ? atoi(words[1]) : 1; round > 0; round--) {
        uLongf size = LENGTH * 2, length = LENGTH;
        if (compress2(packed, &size, text, LENGTH, 1 + round % 9) != Z_OK) return 1;
        for (int i = 0; i < times; i++)
            if (uncompress(again, &length, packed, size) != Z_OK) return 1;
        if (memcmp(text, again, LENGTH) != 0) return 1;
    }
    return 0;
}
