// An inverted index: the documents each word occurs in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Named types keep the names of functions in the profile short.
struct Text : std::string_view {
    using std::string_view::string_view;
    Text(std::string_view text) : std::string_view(text) {}
    Text(const std::string &text) : std::string_view(text) {}
};

// In ascending order.
struct Documents {
    std::vector<uint32_t> numbers;
};

class Index {
public:
    // Adds the words of a document; documents come in ascending order.
    void add(uint32_t document, Text text);

    // The documents a word occurs in.
    const Documents &find(Text word) const {
        static const Documents none;
        const Entry &entry = entries[probe(word, hash(word))];
        return entry.word.empty() ? none : entry.documents;
    }

    // Adds the entries of an index of later documents.
    void merge(const Index &later);

    // The words, most frequent first.
    std::vector<Text> by_frequency() const;

private:
    struct Entry {
        uint64_t hash = 0;
        std::string word; // empty: the entry is free
        Documents documents;
    };

    // FNV-1a.
    static uint64_t hash(Text word) {
        uint64_t sum = 0xcbf29ce484222325;
        for (unsigned char byte : word)
            sum = (sum ^ byte) * 0x100000001b3;
        return sum;
    }

    // The slot of a word, or the free slot for it: open addressing in a power of two of entries.
    size_t probe(Text word, uint64_t hash) const {
        size_t at = hash & (entries.size() - 1);
        while (!entries[at].word.empty() && (entries[at].hash != hash || entries[at].word != word))
            at = (at + 1) & (entries.size() - 1);
        return at;
    }

    Entry &entry(Text word);
    void grow();

    std::vector<Entry> entries = std::vector<Entry>(64);
    size_t used = 0;
};
