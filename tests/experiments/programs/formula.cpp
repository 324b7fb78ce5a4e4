// formula ROUNDS: reads and evaluates a formula by recursive descent, one character at a time.
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

class Reader {
public:
    explicit Reader(const std::string &text) : text(text) {}
    [[gnu::noinline]] double sum() {
        double value = product();
        while (peek() == '+' || peek() == '-') value += next() == '+' ? product() : -product();
        return value;
    }

private:
    [[gnu::noinline]] double product() {
        double value = factor();
        while (peek() == '*' || peek() == '/') {
            if (next() == '*') value *= factor();
            else value /= factor() + 1e-9;
        }
        return value;
    }
    [[gnu::noinline]] double factor() {
        if (peek() != '(') return number();
        next();
        double value = sum();
        next();
        return value;
    }
    [[gnu::noinline]] double number() {
        double value = 0;
        while (peek() >= '0' && peek() <= '9') value = value * 10 + (next() - '0');
        return value;
    }
    [[gnu::noinline]] char peek() const { return at < text.size() ? text[at] : '\0'; }
    [[gnu::noinline]] char next() { return text[at++]; }

    const std::string &text;
    std::size_t at = 0;
};

std::string formula(int depth) {
    if (depth == 0) return "271828";
    return "(" + formula(depth - 1) + "*12+" + formula(depth - 1) + "/7-1618)";
}

} // namespace

int main(int count, char **words) {
    const std::string text = formula(12);
    double sum = 0;
    for (int round = count > 1 ? std::atoi(words[1]) : 1; round > 0; round--)
        sum += Reader(text).sum();
    return std::printf("%g\n", sum) < 0;
}
