/* Invented text, the same on each run, to compress: words of uneven frequency, so that it is
 * compressible. */
#ifndef TEXT_H
#define TEXT_H
#include <stddef.h>
#include <stdint.h>

static void make_text(unsigned char *text, size_t length) {
    uint64_t state = 1;
    size_t at = 0;
    while (at < length) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t word = (uint32_t)(state >> 40) % 4096 * ((uint32_t)(state >> 20) % 4096) / 4096;
        for (uint32_t letters = word * 2654435761u | 1u << 31; letters > 63 && at < length;
             letters >>= 5)
            text[at++] = "etaoinshrdlucmfwypvbgkqjxzETAOIN"[letters & 31];
        if (at < length) text[at++] = (state >> 33) % 12 ? ' ' : '\n';
    }
}

#endif
