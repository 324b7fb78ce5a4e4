// A program to profile: indexes invented documents in two threads, then answers invented queries.
#include "query.hpp"

#include <cstdio>
#include <cstdlib>
#include <thread>

#include <pthread.h>

// The generator of Knuth's MMIX.
class Random {
public:
    explicit Random(uint64_t seed) : state(seed) {}

    uint32_t next() {
        state = state * 6364136223846793005 + 1442695040888963407;
        return static_cast<uint32_t>(state >> 32);
    }

    // Numbers below 40000, small ones far more often than large ones.
    uint32_t choose() {
        double x = next() / 4294967296.0;
        return static_cast<uint32_t>(40000 * x * x * x * x);
    }

private:
    uint64_t state;
};

// A word of the invented language: small numbers give short words.
static std::string word(uint32_t number) {
    std::string text;
    do
        text += "etaoinshrdlucmfw"[number % 16];
    while (number /= 16);
    return text;
}

static std::string document(uint32_t number) {
    Random random(number);
    std::string text;
    for (int i = 0; i < 400; ++i)
        (text += word(random.choose())) += ' ';
    return text;
}

static Index index_range(uint32_t from, uint32_t to) {
    Index index;
    for (uint32_t number = from; number < to; ++number)
        index.add(number, document(number));
    return index;
}

// A query with a tree of at most `depth` levels.
static std::string make_query(Random &random, const std::vector<Text> &words, int depth) {
    if (depth == 0 || random.next() % 8 == 0)
        return std::string(words[random.choose() % words.size()]);
    std::string left = make_query(random, words, depth - 1);
    if (random.next() % 6 == 0)
        return "!" + left;
    const char *both = random.next() % 2 ? " & " : " | ";
    return "(" + left + both + make_query(random, words, depth - 1) + ")";
}

// demo [DOCUMENTS [QUERIES]]
int main(int argc, char **argv) {
    uint32_t documents = argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : 50000;
    Index late;
    std::thread indexer([&] {
        pthread_setname_np(pthread_self(), "indexer");
        late = index_range(documents / 2, documents);
    });
    Index index = index_range(0, documents / 2);
    indexer.join();
    index.merge(late);

    std::vector<Text> words = index.by_frequency();
    Random random(1);
    size_t hits = 0, queries = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : documents / 40;
    for (size_t i = 0; i < queries; ++i)
        hits += search(make_query(random, words, 6), index, documents).numbers.size();
    std::printf("%u documents, %zu words, %zu queries, %zu hits\n", documents, words.size(), queries, hits);
}
