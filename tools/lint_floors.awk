# The rules of the house, for tools/lint_floors.sh: reads the names of files, checks them, CMakeLists.txt and docs/architecture.md,
# and prints each fault as FILE:LINE: message.

# ---- the house -------------------------------------------------------------------------------------------------------

# Returns the parentheses that `text` opens less those that it closes, outside quotes.
function depth(text,   n, i, c, quoted) {
  n = quoted = 0
  for (i = 1; i <= length(text); ++i) {
    c = substr(text, i, 1)
    if (c == "\"") quoted = !quoted
    else if (!quoted) n += (c == "(") - (c == ")")
  }
  return n
}

# Takes one call of mantissa_wing() or mantissa_room().
function declare(call,   about, words, n, i, key, path, parts, room) {
  about = ""
  if (match(call, /"[^"]*"/)) {
    about = substr(call, RSTART + 1, RLENGTH - 2)
    call = substr(call, 1, RSTART - 1) " " substr(call, RSTART + RLENGTH)
  }
  gsub(/[()]/, " ", call)
  n = split(call, words, " ")
  if (words[1] == "mantissa_wing") {
    wing_of_calls = words[2]
    wing_at[words[2]] = ++wings
    wing_name[wings] = words[2]
    wing_about[wings] = about
    return
  }
  path = words[2]
  room = path
  sub(/.*\//, "", room)
  room_name[++rooms] = room
  room_path[room] = path
  room_about[room] = about
  split(path, parts, "/")
  room_wing[room] = parts[1]
  if (!(parts[1] in wing_at)) complain("CMakeLists.txt: room \"" room "\" is in \"" parts[1] "\", which is not a wing")
  else if (parts[1] != wing_of_calls) complain("CMakeLists.txt: room \"" room "\" is listed in wing \"" wing_of_calls "\"")
  uses[room] = links[room] = ""
  key = ""
  for (i = 3; i <= n; ++i) {
    if (words[i] ~ /^[A-Z][A-Z_]*$/) key = words[i]
    else if (key == "USES") uses[room] = uses[room] " " words[i]
    else if (key == "LINKS") links[room] = links[room] " " words[i]
  }
}

function read_house(   line, call, open) {
  call = ""
  while ((getline line < "CMakeLists.txt") > 0) {
    if (call == "" && line !~ /^[ \t]*mantissa_(wing|room)\(/) continue
    sub(/^[ \t]+/, "", line)
    call = call " " line
    if (depth(call) > 0) continue
    declare(call)
    call = ""
  }
}

# Checks that rooms use only rooms of their own wing and of lower ones, which are listed before them.
function check_house(   i, j, n, room, below, seen) {
  for (i = 1; i <= rooms; ++i) {
    room = room_name[i]
    n = split(uses[room], below, " ")
    for (j = 1; j <= n; ++j) {
      if (!(below[j] in room_path))
        complain("CMakeLists.txt: room \"" room "\" uses \"" below[j] "\", which is not a room")
      else if (wing_at[room_wing[below[j]]] > wing_at[room_wing[room]])
        complain("CMakeLists.txt: room \"" room "\" uses \"" below[j] "\" of the higher wing \"" room_wing[below[j]] "\"")
      else if (!(below[j] in seen))
        complain("CMakeLists.txt: room \"" room "\" uses \"" below[j] "\", which is listed after it")
    }
    seen[room] = 1
  }
}

# Returns the room of a path below src/mantissa, or "".
function room_of(path,   parts, n, room) {
  n = split(path, parts, "/")
  room = parts[2]
  if (n > 2 && room in room_path && room_path[room] == parts[1] "/" parts[2]) return room
  return (parts[1] in room_path && room_path[parts[1]] == parts[1]) ? parts[1] : ""
}

# True if room `from` may use room `to`: its own, or one that a room it uses may use.
function may(from, to,   i, n, below) {
  if (from == to) return 1
  if ((from, to) in known) return known[from, to]
  n = split(uses[from], below, " ")
  known[from, to] = 0
  for (i = 1; i <= n; ++i) if (may(below[i], to)) return known[from, to] = 1
  return 0
}

# ---- the tables of docs/architecture.md ------------------------------------------------------------------------------

# Returns the lines of the table of wings and of the table of rooms.
function tables(   text, i, j, k, n, room, below, of, list) {
  text = "| wing | contents | uses |\n| --- | --- | --- |\n"
  for (i = wings; i >= 1; --i) {
    split("", of)
    for (j = 1; j <= rooms; ++j) {
      if (room_wing[room_name[j]] != wing_name[i]) continue
      n = split(uses[room_name[j]], below, " ")
      for (k = 1; k <= n; ++k) of[room_wing[below[k]]] = 1
    }
    list = ""
    for (j = wings; j >= 1; --j)
      if (j != i && wing_name[j] in of) list = list (list == "" ? "" : ", ") wing_name[j]
    text = text "| `" wing_name[i] "` | " wing_about[i] " | " (list == "" ? "–" : list) " |\n"
  }
  text = text "\n| room | uses | contents |\n| --- | --- | --- |\n"
  for (i = wings; i >= 1; --i) {
    for (j = rooms; j >= 1; --j) {
      room = room_name[j]
      if (room_wing[room] != wing_name[i]) continue
      list = uses[room]
      sub(/^ /, "", list)
      gsub(/ /, ", ", list)
      text = text "| `" room_path[room] "` | " (list == "" ? "–" : list) " | " room_about[room] " |\n"
    }
  }
  return text
}

# Checks, or writes, the lines of the document between the mark that begins with `mark` and the end of `what`.
function check_part(mark, what, expected,   document, line, text, before, after, place) {
  document = "docs/architecture.md"
  before = after = text = ""
  place = 0
  while ((getline line < document) > 0) {
    if (line == "<!-- end of " what " -->") place = 2
    if (place == 0) before = before line "\n"
    else if (place == 1) text = text line "\n"
    else after = after line "\n"
    if (index(line, mark) == 1) place = 1
  }
  close(document)
  if (place == 0) return  # a tree without this part
  expected = "\n" expected "\n"
  if (text == expected) return
  if (write) {
    printf "%s%s%s", before, expected, after > document
    close(document)
  } else complain(document ": the tables of " what " are not those of CMakeLists.txt. Fix: ./dev lint --write")
}

# ---- the files -------------------------------------------------------------------------------------------------------

function complain(text) { print text; ++faults }
function fault(line, text) { complain(sprintf("%s:%d: %s", file, line, text)) }

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
  text = " " text
  return text ~ /(\.|->)(id|op)[ \t]*[!=]=[ \t]*"/ || text ~ /"[ \t]*[!=]=[ \t]*[^ ";,]*(\.|->)(id|op)[^A-Za-z0-9_(]/ ||
    text ~ /(\.|->)(id|op)\.(starts_with|ends_with|compare|contains|find|rfind)[ \t]*\([ \t]*["\47]/
}

# Names a kernel context, or casts untyped memory to numbers? (forecast/format_costs.cpp measures the CPU kernels themselves.)
function code_of_device(text) {
  sub(/\/\/.*/, "", text)
  return text ~ /kernels::(Context|Simd)[^A-Za-z]/ || text ~ /static_cast<(const )?(float|double|std::int32_t) ?\*>/
}

# Looks at or changes files?
function code_of_files(text) {
  sub(/\/\/.*/, "", text)
  text = " " text
  return text ~ /(std::filesystem|[^A-Za-z0-9_]fs)::(exists|is_[a-z_]+|remove|remove_all|rename|create_[a-z_]+|copy[a-z_]*|[a-z_]*directory_iterator|file_size|resize_file|status|symlink_status|equivalent)[^A-Za-z0-9_]/ ||
    text ~ /[^A-Za-z0-9_](ifstream|ofstream|fstream|fopen|error_code)[^A-Za-z0-9_]/ ||
    text ~ /[^A-Za-z0-9_]::(open|openat|creat|stat|lstat|unlink|rename|mkdir|rmdir|truncate)[ \t]*\(/
}

function check(file,   line, text, room, used, path, name, number) {
  path = file
  sub(/^src\/mantissa\//, "", path)
  room = room_of(path)
  if (room == "") { fault(1, "is in no room of CMakeLists.txt"); return }
  in_comment = 0
  number = 0
  while ((getline line < file) > 0) {
    ++number
    if (match(line, /^[ \t]*#[ \t]*include[ \t]*[<"][^">]+/)) {
      path = substr(line, RSTART, RLENGTH)
      sub(/.*[<"]/, "", path)
      check_header(room, path, number)
    }
    if (match(line, /^[ \t]*#[ \t]*include[ \t]*[<"]mantissa\/[^">]+/)) {
      sub(/^mantissa\//, "", path)
      used = room_of(path)
      if (used == "") fault(number, "includes \"" path "\", which is in no room")
      else if (!may(room, used)) fault(number, "room \"" room "\" may not use room \"" used "\"")
      else if (room == "cli" && used !~ /^(cli|api|serve)$/ && room_wing[used] != wing_name[1])
        fault(number, "cli reaches room \"" used "\" through api")
      includes[room, used] = 1
    }
    if (room != "graph" && code_names(line))
      fault(number, "distinguish ops by their traits (engine/graph/op.h), not by name")
    if (room != "runtime" && may(room, "runtime") && file !~ /forecast\/format_costs\.cpp$/ && code_of_device(line))
      fault(number, "reach memory and kernels through runtime::Device and runtime::Session")
    # What the system tells about itself (/proc, /dev) decides nothing.
    if (room != "disk" && file !~ /runtime\/(surroundings|process)\.cpp$/ && code_of_files(line))
      fault(number, "reach files through core/disk, where an error is never absence")
    if (room == "cli") continue
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

# Checks that each room includes what it is declared to use.
function check_uses(   i, j, n, below) {
  for (i = 1; i <= rooms; ++i) {
    n = split(uses[room_name[i]], below, " ")
    for (j = 1; j <= n; ++j)
      if (!((room_name[i], below[j]) in includes))
        complain("CMakeLists.txt: room \"" room_name[i] "\" is declared to use \"" below[j] "\", and does not")
  }
}

BEGIN {
  read_libraries()
  read_house()
  if (!rooms) { print "CMakeLists.txt has no mantissa_room()"; exit failed = 2 }
  check_house()
  check_part("<!-- the house", "the house", tables())
  check_part("<!-- the libraries", "the libraries", library_table())
  check_globals()
  check_tests()
}
{ check(file = $0); ++files }
END {
  if (failed) exit failed
  check_uses()
  check_links()
  if (faults) { printf "floors: %d faults in %d files\n", faults, files; exit 1 }
  printf "floors: %d files in %d rooms of %d wings, no faults\n", files, rooms, wings
}
