# For tools/lint_floors.sh: which room includes which library, which globals are mutable, and which rooms have tests.

# ---- libraries -------------------------------------------------------------------------------------------------------

# Names a library by its target in CMake, or "" for one that every room links, and the beginnings of its headers.
function library(name, target, headers,   words, n, i) {
  library_name[++libraries] = name
  library_target[name] = target
  if (target != "") library_of_target[target] = name
  n = split(headers, words, " ")
  for (i = 1; i <= n; ++i) library_of_header[words[i]] = name
}

function read_libraries() {
  library("fmt", "", "fmt/")
  library("cpp-httplib", "mantissa::httplib", "httplib.h")
  library("Highway", "mantissa::hwy", "hwy/")
  library("nlohmann JSON", "nlohmann_json::nlohmann_json", "nlohmann/")
  library("PCRE2", "mantissa::pcre2-8", "pcre2.h")
  library("sentencepiece", "mantissa::sentencepiece", "sentencepiece_processor.h sentencepiece_trainer.h")
  # toml.h of policy includes it with the settings that all rooms must share.
  library("toml++", "mantissa::tomlplusplus", "toml++/ mantissa/precision/policy/toml.h")
  library("utf8proc", "mantissa::utf8proc", "utf8proc.h")
  library("xxHash", "mantissa::xxhash", "xxhash.h xxh3.h")
  library("zlib", "mantissa::z", "zlib.h")
  library("zstd", "mantissa::zstd", "zstd.h zstd_errors.h")
}

# True if the room itself links the target.
function has_link(room, target) { return index(links[room] " ", " " target " ") > 0 }

# Checks the library of the header that a file includes, if it is not of the house, the language or the system.
function check_header(room, header, number,   name, folder) {
  folder = header
  if (!(header in library_of_header)) sub(/\/.*/, "/", folder)
  if (folder in library_of_header) {
    name = library_of_header[folder]
    included[room, name] = 1
    if (library_target[name] != "" && !has_link(room, library_target[name]))
      fault(number, "room \"" room "\" does not link " name ". Fix: LINKS " library_target[name] " in CMakeLists.txt")
  } else if (header ~ /^[^\/]+\// && folder !~ /^(mantissa|assets|sys|asm|linux|netinet|arpa)\//) {
    fault(number, "includes <" header "> of a library that is not in the list of tools/lint_libraries.awk")
  }
}

# Checks that each room includes the libraries that it links.
function check_links(   i, j, n, targets, name) {
  for (i = 1; i <= rooms; ++i) {
    n = split(links[room_name[i]], targets, " ")
    for (j = 1; j <= n; ++j) {
      if (targets[j] == "Threads::Threads" || targets[j] == "${CMAKE_DL_LIBS}") continue  # parts of the system
      if (!(targets[j] in library_of_target))
        complain("CMakeLists.txt: room \"" room_name[i] "\" links \"" targets[j] "\", which is not in the list of tools/lint_libraries.awk")
      else if (!((room_name[i], library_of_target[targets[j]]) in included))
        complain("CMakeLists.txt: room \"" room_name[i] "\" links \"" targets[j] "\", and does not include it")
    }
  }
}

# Returns the lines of the table of libraries.
function library_table(   text, i, j, name, list) {
  text = "| library | rooms that may include it |\n| --- | --- |\n"
  for (i = 1; i <= libraries; ++i) {
    name = library_name[i]
    list = ""
    for (j = 1; j <= rooms; ++j)
      if (has_link(room_name[j], library_target[name])) list = list (list == "" ? "" : ", ") "`" room_name[j] "`"
    if (library_target[name] == "") list = "all"
    text = text "| " name " | " (list == "" ? "–" : list) " |\n"
  }
  return text
}

# ---- mutable globals, and tests --------------------------------------------------------------------------------------

# Checks the globals that lint_globals.awk found against the table of docs/architecture.md.
function check_globals(   document, line, inside, cells, name, path, n, found, words, i, listed, seen, key) {
  document = "docs/architecture.md"
  while ((getline line < document) > 0) {
    if (line ~ /^<!-- mutable globals/) inside = 1
    else if (line ~ /^<!-- end of mutable globals/) inside = 0
    else if (inside && split(line, cells, "|") > 3) {
      name = cells[2]
      path = cells[3]
      gsub(/[` ]/, "", name)
      gsub(/[` ]/, "", path)
      if (path ~ /\//) listed["src/mantissa/" path, name] = 1
    }
  }
  close(document)
  n = split(ENVIRON["GLOBALS"], found, "\n")
  for (i = 1; i <= n; ++i) {
    split(found[i], words, " ")
    if (words[3] == "unbalanced") {
      complain(words[1] ":" words[2] ": has braces that the linter cannot match, so it may miss mutable globals")
    } else if ((words[1], words[4]) in listed) {
      seen[words[1], words[4]] = 1
    } else {
      complain(words[1] ":" words[2] ": \"" words[4] "\" is a mutable global. Fix: pass it, or list it in docs/architecture.md")
    }
  }
  for (key in listed) {
    if (key in seen) continue
    split(key, words, SUBSEP)
    complain(document ": lists the mutable global \"" words[2] "\", which is not in " words[1])
  }
}

# Checks that each room has a folder of tests, and each such folder of a wing a room.
function check_tests(   n, folders, i, tested, parts, path) {
  n = split(ENVIRON["TESTED"], folders, "\n")
  for (i = 1; i <= n; ++i) {
    path = substr(folders[i], length("tests/") + 1)
    tested[path] = 1
    split(path, parts, "/")
    if (parts[1] in wing_at && room_of(path "/x") == "") complain(folders[i] ": is the folder of no room")
  }
  for (i = 1; i <= rooms; ++i) {
    path = room_path[room_name[i]]
    if (!(path in tested)) complain("tests/" path ": room \"" room_name[i] "\" has no *_test.cpp of its own")
  }
}
