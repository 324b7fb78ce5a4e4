// Eight threads that count words, each in a table of its own: the allocations of a program with work to do.
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>

static unsigned long count(unsigned seed) {
    std::map<std::string, std::vector<unsigned>> places;
    for (unsigned at = 0; at < 600000; at++) {
        seed = seed * 1664525 + 1013904223;
        places["the word of number " + std::to_string(seed >> 18)].push_back(at);
    }
    return places.size();
}

int main() {
    std::vector<std::thread> threads;
    std::vector<unsigned long> counts(8);
    for (unsigned index = 0; index < counts.size(); index++) {
        threads.emplace_back([&counts, index] { counts[index] = count(index); });
    }
    unsigned long sum = 0;
    for (unsigned index = 0; index < counts.size(); index++) {
        threads[index].join();
        sum += counts[index];
    }
    std::printf("%lu\n", sum);
}
