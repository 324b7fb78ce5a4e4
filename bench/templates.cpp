// Many instances of the library templates that C++ programs use, inlined deeply: the debug information
// is many times larger than the code. One unit of several: UNIT is its number, SIZES the number of types
// it instantiates the templates with.

#include <algorithm>
#include <map>
#include <numeric>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#define NAME_OF(unit) unit_##unit
#define NAME(unit) NAME_OF(unit)

namespace {

template <int size> struct Thing {
    std::string name;
    double value[size];
    std::map<std::string, std::vector<int>> table;
    bool operator<(const Thing &other) const {
        double mine = value[size - 1], theirs = other.value[size - 1];
        return mine != theirs ? mine < theirs : name < other.name;
    }
};

template <int size> long work(int count) {
    std::vector<Thing<size>> things;
    std::unordered_map<std::string, Thing<size>> by_name;
    std::set<Thing<size>> sorted;
    for (int i = 0; i < count; i++) {
        Thing<size> thing{std::to_string(i * 7919 % 1000), {}, {}};
        for (int j = 0; j < size; j++) thing.value[j] = i * j % 17;
        thing.table[thing.name].push_back(i);
        things.push_back(thing);
        by_name[thing.name] = thing;
        sorted.insert(thing);
    }
    std::sort(things.begin(), things.end());
    std::stable_sort(things.begin(), things.end(),
                     [](auto &a, auto &b) { return a.name < b.name; });
    std::ostringstream out;
    for (auto &thing : things) out << thing.name << thing.value[0] << '\n';
    auto add = [&](long sum, auto &thing) { return sum + long(thing.value[0]); };
    return std::accumulate(things.begin(), things.end(), long(out.str().size()), add) +
           by_name.size() + sorted.size();
}

template <int... sizes> long all(int count, std::integer_sequence<int, sizes...>) {
    return (work<sizes + 1>(count) + ... + 0);
}

} // namespace

extern "C" long NAME(UNIT)(int count) {
    std::regex word("([a-z]+)_([0-9]+)*");
    long found = 0;
    for (int i = 0; i < count; i++) {
        std::string text = "unit_" + std::to_string(i);
        std::smatch match;
        found += std::regex_match(text, match, word);
    }
    return found + all(count, std::make_integer_sequence<int, SIZES>());
}
