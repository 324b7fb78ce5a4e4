// Functions with known CPU time: prints the name of each and its time in nanoseconds. They are virtual, throw
// exceptions, are called by the library and run in threads.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

static volatile unsigned long sink;

static long long cpu_ns() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

[[gnu::noinline]] static void spin(unsigned long rounds) {
    unsigned long x = rounds;
    for (unsigned long i = 0; i < rounds; i++) {
        x = x * 6364136223846793005UL + i;
        asm volatile("" : "+r"(x));
    }
    sink = sink + x;
}

struct Part {
    virtual ~Part() = default;
    virtual void run() = 0;
};

struct Plain final : Part {
    [[gnu::noinline]] void run() override { spin(4000000); sink = sink + 1; }
};

struct Thrower final : Part {
    [[gnu::noinline]] static void fail(int depth) {
        if (depth == 0) {
            spin(2000000);
            throw std::runtime_error("expected");
        }
        fail(depth - 1);
        sink = sink + 1;
    }
    [[gnu::noinline]] void run() override {
        try {
            fail(20);
        } catch (const std::exception &) {
            sink = sink + 1;
        }
    }
};

struct Sorter final : Part {
    [[gnu::noinline]] void run() override {
        std::vector<int> numbers;
        for (int i = 0; i < 64; i++) numbers.push_back(i * 37 % 64);
        std::sort(numbers.begin(), numbers.end(), [](int a, int b) { spin(5000); return a < b; });
        sink = sink + numbers[3];
    }
};

[[gnu::noinline]] static void threads(long long &ns) {
    // Of both threads, by their own clocks.
    long long times[2] = {};
    std::vector<std::thread> running;
    for (auto &time : times)
        running.emplace_back([&time] { auto start = cpu_ns(); Plain().run(); time = cpu_ns() - start; });
    for (auto &thread : running) thread.join();
    ns += times[0] + times[1];
}

int main() {
    std::pair<const char *, std::unique_ptr<Part>> parts[] = {
        {"Plain::run()", std::make_unique<Plain>()},
        {"Thrower::run()", std::make_unique<Thrower>()},
        {"Sorter::run()", std::make_unique<Sorter>()},
    };
    long long ns[4] = {};
    for (int round = 0; round < 16; round++) {
        for (int part = 0; part < 3; part++) {
            long long start = cpu_ns();
            parts[part].second->run();
            ns[part] += cpu_ns() - start;
        }
        if (round % 4 == 0) threads(ns[0]);
    }
    for (int part = 0; part < 3; part++) printf("%s %lld\n", parts[part].first, ns[part]);
}
