// Allocates known amounts by the operators of C++, in threads: prints the name of each function, the bytes allocated by
// it and those left at the end.
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

static const int THREADS = 4, ROUNDS = 20000;

struct Node {
    Node *next;
    long numbers[5];
};

[[gnu::noinline]] static Node *keeps(Node *list) { return new Node{list, {}}; }

[[gnu::noinline]] static long frees(int i) {
    std::unique_ptr<long[]> numbers(new long[100 + i % 2]);
    numbers[i % 100] = i;
    asm volatile("" : : "r"(numbers.get()) : "memory");
    return numbers[i % 100];
}

static Node *lists[THREADS];
static volatile long sink;

static void work(int thread) {
    Node *list = nullptr;
    for (int i = 0; i < ROUNDS; i++) {
        list = keeps(list);
        sink = sink + frees(i);
    }
    lists[thread] = list;
}

int main() {
    std::vector<std::thread> threads;
    for (int i = 0; i < THREADS; i++) threads.emplace_back(work, i);
    for (std::thread &thread : threads) thread.join();
    long kept = long(sizeof(Node)) * THREADS * ROUNDS, freed = 804L * THREADS * ROUNDS;
    std::printf("keeps(Node*) %ld %ld\nfrees(int) %ld 0\n", kept, kept, freed);
}
