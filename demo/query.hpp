// Boolean queries over an index, such as `(fox | hound) & !river`. Built as libquery.so.
#pragma once

#include "index.hpp"

// The documents a query selects among those below `documents`. Throws std::invalid_argument.
Documents search(Text query, const Index &index, uint32_t documents);
