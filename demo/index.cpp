#include "index.hpp"

#include <algorithm>

void Index::add(uint32_t document, Text text) {
    size_t start = 0;
    while (start < text.size()) {
        size_t end = std::min(text.find(' ', start), text.size());
        std::vector<uint32_t> &numbers = entry(text.substr(start, end - start)).documents.numbers;
        if (numbers.empty() || numbers.back() != document)
            numbers.push_back(document);
        start = end + 1;
    }
}

Index::Entry &Index::entry(Text word) {
    uint64_t sum = hash(word);
    size_t at = probe(word, sum);
    if (!entries[at].word.empty())
        return entries[at];
    if (used * 2 >= entries.size()) {
        grow();
        at = probe(word, sum);
    }
    ++used;
    entries[at].hash = sum;
    entries[at].word = word;
    return entries[at];
}

void Index::grow() {
    std::vector<Entry> old(entries.size() * 2);
    old.swap(entries);
    for (Entry &entry : old)
        if (!entry.word.empty())
            entries[probe(entry.word, entry.hash)] = std::move(entry);
}

void Index::merge(const Index &later) {
    for (const Entry &from : later.entries) {
        if (from.word.empty())
            continue;
        std::vector<uint32_t> &to = entry(from.word).documents.numbers;
        to.insert(to.end(), from.documents.numbers.begin(), from.documents.numbers.end());
    }
}

std::vector<Text> Index::by_frequency() const {
    std::vector<const Entry *> order;
    for (const Entry &entry : entries)
        if (!entry.word.empty())
            order.push_back(&entry);
    std::sort(order.begin(), order.end(), [](const Entry *a, const Entry *b) {
        size_t in_a = a->documents.numbers.size(), in_b = b->documents.numbers.size();
        return in_a != in_b ? in_a > in_b : a->word < b->word;
    });
    std::vector<Text> words;
    for (const Entry *entry : order)
        words.push_back(entry->word);
    return words;
}
