/* trees ROUNDS: builds binary search trees of records, looks up all of them, and frees them:
 * allocation and comparisons. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
    char key[16];
    int count;
    struct node *left, *right;
};

static __attribute__((noinline)) int compare(const char *one, const char *other) {
    while (*one == *other && *one) one++, other++;
    return *one - *other;
}

static __attribute__((noinline)) struct node *insert(struct node *tree, const char *key) {
    struct node **at = &tree;
    while (*at) {
        int order = compare(key, (*at)->key);
        if (order == 0) return (*at)->count++, tree;
        at = order < 0 ? &(*at)->left : &(*at)->right;
    }
    *at = calloc(1, sizeof **at);
    strcpy((*at)->key, key);
    return tree;
}

static __attribute__((noinline)) int depth(const struct node *tree) {
    if (!tree) return 0;
    int left = depth(tree->left), right = depth(tree->right);
    return 1 + (left > right ? left : right);
}

static __attribute__((noinline)) void drop(struct node *tree) {
    if (!tree) return;
    drop(tree->left);
    drop(tree->right);
    free(tree);
}

static __attribute__((noinline)) void name(unsigned number, char *key) {
    for (int i = 0; i < 8; i++, number /= 11) key[i] = (char)('a' + number % 11);
    key[8] = 0;
}

int main(int count, char **words) {
    int sum = 0;
    for (int round = count > 1 ? atoi(words[1]) : 1; round > 0; round--) {
        struct node *tree = NULL;
        unsigned state = 3;
        for (int i = 0; i < 40000; i++) {
            char key[16];
            name((state = state * 1664525 + 1013904223) >> 17, key);
            tree = insert(tree, key);
        }
        for (int i = 0; i < 5; i++) sum += depth(tree);
        drop(tree);
    }
    return printf("%d\n", sum) < 0;
}
