#include "query.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>

struct Node {
    char kind; // 'w' a word, '!' not, '&' and, '|' or
    Text word;
    std::unique_ptr<Node> left, right;
};

using Tree = std::unique_ptr<Node>;

// query = both {'|' both};  both = term {'&' term};  term = word | '!' term | '(' query ')'
class Parser {
public:
    explicit Parser(Text text) : rest(text) {}

    Tree whole() {
        Tree tree = query();
        if (!rest.empty())
            throw std::invalid_argument("a query goes on after its end");
        return tree;
    }

private:
    Tree query() {
        Tree tree = both();
        while (take('|'))
            tree.reset(new Node{'|', {}, std::move(tree), both()});
        return tree;
    }

    Tree both() {
        Tree tree = term();
        while (take('&'))
            tree.reset(new Node{'&', {}, std::move(tree), term()});
        return tree;
    }

    Tree term() {
        if (take('!'))
            return Tree(new Node{'!', {}, term(), nullptr});
        if (take('(')) {
            Tree tree = query();
            if (!take(')'))
                throw std::invalid_argument("a parenthesis is not closed");
            return tree;
        }
        size_t length = std::min(rest.find_first_of("!&|() "), rest.size());
        if (length == 0)
            throw std::invalid_argument("a word is missing");
        Tree tree(new Node{'w', rest.substr(0, length), nullptr, nullptr});
        rest.remove_prefix(length);
        return tree;
    }

    bool take(char mark) {
        while (!rest.empty() && rest.front() == ' ')
            rest.remove_prefix(1);
        if (rest.empty() || rest.front() != mark)
            return false;
        rest.remove_prefix(1);
        return true;
    }

    Text rest;
};

// Merges two lists. The flags keep elements of the left list only, of the right only, of both.
static inline Documents merge(const Documents &a, const Documents &b, bool left, bool right, bool both) {
    Documents result;
    auto x = a.numbers.begin(), y = b.numbers.begin();
    while (x != a.numbers.end() || y != b.numbers.end()) {
        bool first = y == b.numbers.end() || (x != a.numbers.end() && *x <= *y);
        bool second = x == a.numbers.end() || (y != b.numbers.end() && *y <= *x);
        if (first && second ? both : first ? left : right)
            result.numbers.push_back(first ? *x : *y);
        x += first;
        y += second;
    }
    return result;
}

static Documents evaluate(const Node &node, const Index &index, const Documents &all) {
    if (node.kind == 'w')
        return index.find(node.word);
    Documents left = evaluate(*node.left, index, all);
    if (node.kind == '!')
        return merge(all, left, true, false, false);
    Documents right = evaluate(*node.right, index, all);
    return merge(left, right, node.kind == '|', node.kind == '|', true);
}

Documents search(Text query, const Index &index, uint32_t documents) {
    Documents all;
    for (uint32_t number = 0; number < documents; ++number)
        all.numbers.push_back(number);
    return evaluate(*Parser(query).whole(), index, all);
}
