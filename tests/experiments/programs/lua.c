/* lua ROUNDS: runs the Lua interpreter on strings, tables, closures and garbage. */
#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"
#include <stdlib.h>

static const char script[] =
    "local rounds = ...\n"
    "local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end\n"
    "for round = 1, rounds do\n"
    "  local words, list = {}, {}\n"
    "  for i = 1, 60000 do\n"
    "    local word = 'w' .. (i * 7919 % 5003)\n"
    "    words[word] = (words[word] or 0) + #word\n"
    "    list[#list + 1] = word:upper():gsub('W', 'v')\n"
    "  end\n"
    "  table.sort(list)\n"
    "  fib(22)\n"
    "end\n";

int main(int count, char **words) {
    lua_State *lua = luaL_newstate();
    luaL_openlibs(lua);
    if (luaL_loadstring(lua, script) != LUA_OK) return 1;
    lua_pushinteger(lua, count > 1 ? atoi(words[1]) : 1);
    int status = lua_pcall(lua, 1, 0, 0);
    lua_close(lua);
    return status != LUA_OK;
}
