#!/usr/bin/env bash
# Checks the floors (docs/architecture.md) of the tree at $1. A file of src/mantissa/<room> may include headers of its own room
# and of the rooms that CMakeLists.txt lets it use, directly or indirectly. Only cli may print, exit or read the environment.
# Only graph may compare the names of ops. Rooms above runtime reach memory and kernels through a device: they may not name
# contexts or instruction sets, or cast memory to numbers. Prints each fault as FILE:LINE: message, and fails if there are any.
set -euo pipefail
root=${1:-.}
cd "$root"

find src/mantissa -name '*.h' -o -name '*.cpp' | sort | awk '
  # True if room `from` may use room `to`: its own, or one that a room it uses may use.
  function may(from, to,   i, n, below) {
    if (from == to) return 1
    n = split(uses[from], below, " ")
    for (i = 1; i <= n; ++i) if (may(below[i], to)) return 1
    return 0
  }
  function fault(line, text) { printf "%s:%d: %s\n", file, line, text; ++faults }

  # Code without string literals, character literals and comments (block comments may span lines).
  function code(text,   at, rest) {
    if (in_comment) {
      at = index(text, "*/")
      if (!at) return ""
      text = substr(text, at + 2)
      in_comment = 0
    }
    gsub(/\\./, "", text)
    gsub(/"[^"]*"/, "\"\"", text)
    sub(/\/\/.*/, "", text)
    while ((at = index(text, "/*")) > 0) {
      rest = substr(text, at + 2)
      text = substr(text, 1, at - 1)
      at = index(rest, "*/")
      if (!at) { in_comment = 1; break }
      text = text " " substr(rest, at + 2)
    }
    return text
  }

  # Compares an op id or name with a string?
  function code_names(text) {
    sub(/\/\/.*/, "", text)
    return text ~ /op->(id|op)[ \t]*[!=]=[ \t]*"/ || text ~ /"[ \t]*[!=]=[ \t]*[A-Za-z_.]*op->(id|op)/
  }

  # Names a kernel context, or casts untyped memory to numbers? (cost/format_costs.cpp measures the CPU kernels themselves.)
  function code_of_device(text) {
    sub(/\/\/.*/, "", text)
    return text ~ /kernels::(Context|Simd)[^A-Za-z]/ || text ~ /static_cast<(const )?(float|double|std::int32_t) ?\*>/
  }

  # Holds state that outlives a call? Constants of the C library and of references do not count.
  function code_of_global(text) {
    sub(/\/\/.*/, "", text)
    if (text ~ /^[ \t]*(static[ \t]+)?(inline[ \t]+)?const(expr)?[ \t]/ || text ~ /static[ \t]+(inline[ \t]+)?const(expr)?[ \t]/) return 0
    if (text ~ /[^A-Za-z_]thread_local[^A-Za-z_]/) return 1
    if (text ~ /^std::(atomic|mutex|once_flag|shared_mutex)[<A-Za-z0-9_:> ]* [a-z_]+.*;/) return 1
    return text ~ /^[ \t]*static[ \t]+[A-Za-z_:]+(<.*>)?[ \t&*]+[a-z_]+([ \t]*[={].*)?;/
  }

  function check(file,   line, text, room, parts, used, name, number) {
    split(file, parts, "/")
    room = parts[3]
    if (!(room in uses)) { fault(1, "\"" room "\" is not a room of CMakeLists.txt"); return }
    in_comment = 0
    number = 0
    while ((getline line < file) > 0) {
      ++number
      if (match(line, /^[ \t]*#[ \t]*include[ \t]*[<"]mantissa\/[^\/">]+/)) {
        used = substr(line, RSTART, RLENGTH)
        sub(/.*mantissa\//, "", used)
        if (!(used in uses)) fault(number, "includes \"" used "\", which is not a room")
        else if (!may(room, used)) fault(number, "room \"" room "\" may not use room \"" used "\"")
      }
      if (room != "graph" && code_names(line))
        fault(number, "distinguish ops by their traits (graph/op.h), not by name")
      if (room != "runtime" && may(room, "runtime") && file !~ /cost\/format_costs\.cpp$/ && code_of_device(line))
        fault(number, "reach memory and kernels through runtime::Device and runtime::Session")
      if (room == "cli") continue
      if (file !~ /(kernels\/guard_count\.(cpp|h)|cost\/measure_machine\.cpp|kernels\/cpu\/model_tiles\.h)$/ && code_of_global(line))
        fault(number, "no mutable globals: pass it, or name the file here and in docs/architecture.md")
      if (line ~ /^[ \t]*#[ \t]*include[ \t]*<(iostream|print|spdlog\/|CLI\/|CLI11)/)
        fault(number, "only cli may include this")
      text = " " code(line) " "
      if (match(text, /[^A-Za-z0-9_](exit|_exit|_Exit|quick_exit|abort|terminate|getenv|secure_getenv|setenv|putenv|system|printf|vprintf|puts|putchar|perror)[ \t]*\(/) ||
          match(text, /(std::(cout|cerr|clog)|[^A-Za-z0-9_](stdout|stderr))[^A-Za-z0-9_]/) || match(text, /fmt::print(ln)?[ \t]*\(/)) {
        name = substr(text, RSTART, RLENGTH)
        gsub(/^[^A-Za-z0-9_]+|[^A-Za-z0-9_]+$/, "", name)
        fault(number, "the library may not print, exit or read the environment: " name)
      }
    }
    close(file)
  }

  BEGIN {
    while ((getline line < "CMakeLists.txt") > 0) {
      if (line !~ /^[ \t]*mantissa_room\(/) continue
      sub(/^[ \t]*mantissa_room\([ \t]*/, "", line)
      sub(/\).*/, "", line)
      sub(/LINKS.*/, "", line)
      room = line
      sub(/[ \t].*/, "", room)
      if (line ~ /USES/) sub(/.*USES[ \t]*/, "", line); else line = ""
      uses[room] = line
      ++rooms
    }
    if (!rooms) { print "CMakeLists.txt has no mantissa_room()"; exit failed = 2 }
  }
  { check(file = $0); ++files }
  END {
    if (failed) exit failed
    if (faults) { printf "floors: %d faults in %d files\n", faults, files; exit 1 }
    printf "floors: %d files in %d rooms, no faults\n", files, rooms
  }'
