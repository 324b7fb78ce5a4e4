// events HOW TASKS: runs TASKS equal pieces of work, each with a known number of page faults, context
// switches and system calls: in sequence (HOW is sequential), or each in a thread (threads).
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr std::size_t pages = 2000, page = 4096;
constexpr int calls = 5000;

void piece() {
    void *memory = mmap(nullptr, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0);
    madvise(memory, pages * page, MADV_NOHUGEPAGE);
    for (std::size_t at = 0; at < pages; at++) static_cast<volatile char *>(memory)[at * page] = 1;
    munmap(memory, pages * page);
    for (int i = 0; i < calls; i++) syscall(SYS_getppid);
    volatile long sum = 0;
    for (int i = 0; i < 200000000; i++) sum = sum + i;
}

} // namespace

int main(int count, char **words) {
    if (count < 3) return 2;
    int tasks = std::atoi(words[2]);
    std::vector<std::thread> threads;
    for (int task = 0; task < tasks; task++) {
        if (words[1] == std::string("sequential")) piece();
        else threads.emplace_back(piece);
    }
    for (auto &thread : threads) thread.join();
    return 0;
}
