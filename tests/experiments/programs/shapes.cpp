// shapes ROUNDS: virtual calls on small objects, as object-oriented programs make.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace {

struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
    virtual double grown(double by) = 0;
};

struct Circle : Shape {
    double radius = 1;
    double area() const override { return 3.14159265 * radius * radius; }
    double grown(double by) override { return radius += by; }
};

struct Box : Shape {
    double width = 1, height = 2;
    double area() const override { return width * height; }
    double grown(double by) override { return width += by, height += by / 2; }
};

struct Group : Shape {
    std::vector<std::unique_ptr<Shape>> members;
    double area() const override {
        double sum = 0;
        for (const auto &member : members) sum += member->area();
        return sum;
    }
    double grown(double by) override {
        double sum = 0;
        for (const auto &member : members) sum += member->grown(by);
        return sum;
    }
};

std::unique_ptr<Shape> build(int depth, unsigned &state) {
    state = state * 1664525 + 1013904223;
    if (depth == 0) {
        if (state >> 31) return std::make_unique<Circle>();
        return std::make_unique<Box>();
    }
    auto group = std::make_unique<Group>();
    for (int i = 0; i < 8; i++) group->members.push_back(build(depth - 1, state));
    return group;
}

} // namespace

int main(int count, char **words) {
    unsigned state = 1;
    auto all = build(4, state);
    double sum = 0;
    for (int round = count > 1 ? std::atoi(words[1]) : 1; round > 0; round--)
        sum += all->area() + all->grown(0.001);
    return std::printf("%g\n", sum) < 0;
}
