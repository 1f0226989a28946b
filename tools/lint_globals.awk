# Finds the variables with static storage in C++ files, by the scopes in which statements stand: namespaces and files, classes
# (static members) and functions (static and thread_local variables). Prints one line for each: FILE LINE KIND NAME, where KIND
# is "const" or "mutable". A pointer is const if it cannot point elsewhere; a reference, if what it names is const. Prints
# FILE LINE unbalanced if it does not understand the braces of a file. It does not see variables of macros, or those that
# parentheses initialize with names alone ("Pool pool(size);"); tests/tools/globals_test.sh finds these in the libraries.
# Usage: awk -f lint_globals.awk FILE...

# Returns the text of a line without comments, and with literals as "". Block comments and raw strings may span lines.
function plain(text,   out, at, mark, first, rest) {
  out = ""
  while (text != "") {
    if (closing != "") {
      at = index(text, closing)
      if (!at) return out
      text = substr(text, at + length(closing))
      closing = ""
      continue
    }
    if (!match(text, /\/\/|\/\*|"|'/)) return out text
    mark = substr(text, RSTART, RLENGTH)
    first = substr(text, 1, RSTART - 1)
    rest = substr(text, RSTART + RLENGTH)
    if (mark == "//") return out first
    if (mark == "/*") {
      out = out first " "
      closing = "*/"
    } else if (mark == "\"" && first ~ /(^|[^A-Za-z0-9_])(u8|u|U|L)?R$/) {
      at = index(rest, "(")
      closing = ")" substr(rest, 1, at - 1) "\""
      rest = substr(rest, at + 1)
      sub(/R$/, "", first)
      out = out first "\"\""
    } else if (mark == "'" && first ~ /[0-9A-Fa-f]$/ && rest ~ /^[0-9A-Fa-f]/) {
      out = out first  # digits are grouped: 1'000
    } else {
      at = 1
      while (at <= length(rest) && substr(rest, at, 1) != mark) at += substr(rest, at, 1) == "\\" ? 2 : 1
      rest = substr(rest, at + 1)
      out = out first "\"\""
    }
    text = rest
  }
  return out
}

# Returns the text without template arguments.
function without_templates(text) {
  gsub(/->|<<|<=>|<=|>=/, " ", text)
  while (gsub(/<[^<>]*>/, " ", text)) continue
  return text
}

# Prints the variable that statement `text` of a scope of kind `scope` declares, if it declares one with static storage.
function declare(text, scope,   head, name, at, more, constness) {
  gsub(/\[\[[^]]*\]\]/, " ", text)
  gsub(/(^|[^A-Za-z0-9_])(public|private|protected)[ \t]*:/, " ", text)
  gsub(/operator[ \t]*[^A-Za-z0-9_ \t(][^(]*/, "operator", text)
  gsub(/(alignas|decltype|noexcept|__attribute__)[ \t]*\(\)/, " ", text)
  head = without_templates(text)
  if (head ~ /^[ \t]*(friend|namespace|static_assert|extern|return)([^A-Za-z0-9_]|$)/) return
  if (head ~ /(^|[^A-Za-z0-9_])(using|typedef|concept)[^A-Za-z0-9_]/) return
  if (scope != "file" && head !~ /(^|[^A-Za-z0-9_])(static|thread_local)[^A-Za-z0-9_]/) return
  if (head ~ /(^|[^A-Za-z0-9_])operator([^A-Za-z0-9_]|$)/) return
  # The initializer ends the declarator.
  more = ""
  if (match(head, /=|\{\}/)) {
    more = substr(head, RSTART)
    head = substr(head, 1, RSTART - 1)
  }
  if (more == "" && scope == "body" && match(head, /[A-Za-z0-9_][ \t]*\([^*]/)) head = substr(head, 1, RSTART)
  # "Type name(3)" is a variable, "Type name(Type)" a function; "(*name)(Type)" is a pointer to functions.
  if (match(head, /\([ \t]*[A-Za-z_:]*\*/)) {
    head = substr(head, RSTART + 1)
    sub(/\).*/, "", head)
  } else if (match(head, /\([-0-9"&{]/)) {
    head = substr(head, 1, RSTART - 1)
  } else if (index(head, "(")) {
    return
  }
  while (sub(/\[[^][]*\][ \t]*$/, "", head)) continue
  sub(/[ \t]+$/, "", head)
  if (!match(head, /[A-Za-z_][A-Za-z0-9_]*$/)) return
  name = substr(head, RSTART)
  head = " " substr(head, 1, RSTART - 1) " "
  sub(/^[ \t]*template[ \t]/, " ", head)
  if (head !~ /[A-Za-z0-9_*&]/ || name ~ /^(struct|class|union|enum|const|inline|static|public|private|protected|default)$/) return
  if (head ~ /^[ \t]*(struct|class|union|enum)([ \t]+(struct|class))?[ \t]*$/) return  # declared, or "enum Name : type;"
  if (head ~ /[^A-Za-z0-9_](enum|class|struct|union)[^A-Za-z0-9_].*[^:]:[^:]/) return
  at = 0
  if (match(head, /.*[*]/)) at = RLENGTH
  constness = (head ~ /[^A-Za-z0-9_]constexpr[^A-Za-z0-9_]/ ||
    substr(head, at + 1) ~ /(^|[^A-Za-z0-9_])const[^A-Za-z0-9_]/) ? "const" : "mutable"
  print file, line_of_statement, constness, name
  # Others of the same declaration.
  while (match(more, /,[ \t]*\**[ \t]*[A-Za-z_][A-Za-z0-9_]*[ \t]*(=|\{\}|,|$)/)) {
    name = substr(more, RSTART, RLENGTH)
    more = substr(more, RSTART + RLENGTH - 1)
    gsub(/[^A-Za-z0-9_]/, "", name)
    print file, line_of_statement, constness, name
  }
}

# Adds text between marks to the statement.
function add(text) {
  if (parens && kind[level] != "body") {
    # Only what tells a value from a type, or a pointer, is kept of parentheses.
    if (parens == 1 && fresh && match(text, /[^ \t]/)) {
      statement = statement (substr(text, RSTART, 1) ~ /[-0-9"&*]/ ? substr(text, RSTART) : "x")
      fresh = 0
    }
    return
  }
  if (statement ~ /^[ \t]*$/ && text ~ /[^ \t]/) line_of_statement = number
  statement = statement text
}

function enter(what) {
  outer[++level] = statement
  outer_line[level] = line_of_statement
  outer_parens[level] = parens
  kind[level] = what
  statement = ""
  parens = 0
}

# Returns what a brace opens after the statement so far.
function opened(   head) {
  if (kind[level] == "body" || kind[level] == "value") return "body"
  head = without_templates(statement)
  gsub(/\[\[[^]]*\]\]/, " ", head)
  gsub(/alignas[ \t]*\([^)]*\)/, " ", head)
  sub(/^[ \t]*(template)[ \t]*/, "", head)
  if (head ~ /(^|[^A-Za-z0-9_])namespace([^A-Za-z0-9_]|$)/ || head ~ /^[ \t]*extern[ \t]*""[ \t]*$/) return "file"
  gsub(/operator[ \t]*[^A-Za-z0-9_ \t(][^(]*/, "operator", head)
  if (head ~ /(^|[^A-Za-z0-9_])enum([^A-Za-z0-9_]|$)/ && head !~ /[(=]/) return "enum"
  if (head ~ /(^|[^A-Za-z0-9_])(class|struct|union)([^A-Za-z0-9_]|$)/ && head !~ /[(=]/) return "class"
  if (head ~ /=/ || (head !~ /\(/ && head !~ /^[ \t]*,/ && head ~ /[A-Za-z0-9_]/)) return "value"
  return "body"
}

function leave(   was) {
  if (level == 0) { broken = 1; return }
  was = kind[level]
  if (was == "body" && statement ~ /[^ \t]/) declare(statement, was)
  statement = outer[level]
  line_of_statement = outer_line[level]
  parens = outer_parens[level]
  --level
  if (was == "value") statement = statement "{}"
  else if (was == "class" && kind[level] != "body") statement = (statement ~ /(^|[^A-Za-z0-9_])static([^A-Za-z0-9_]|$)/ ? "static " : "") "type "
  else statement = ""
}

function take(mark) {
  if (mark == "(") {
    if (kind[level] == "body" || kind[level] == "value" || !parens) add("(")
    ++parens
    fresh = parens == 1
  } else if (mark == ")") {
    if (parens > 0) --parens
    if (kind[level] == "body" || kind[level] == "value" || !parens) add(")")
  } else if (mark == "{") {
    # In a function a brace ends what is known of a variable; its initializer may have functions of its own.
    if (kind[level] == "body") declare(statement " ", "body")
    # A brace within parentheses is a value, or a function that has no name.
    if (parens && kind[level] != "body" && kind[level] != "value") enter("value-in-parentheses")
    else enter(opened())
  } else if (mark == "}") {
    if (kind[level] == "value-in-parentheses") {
      statement = outer[level]
      line_of_statement = outer_line[level]
      parens = outer_parens[level]
      --level
    } else leave()
  } else if (!parens || kind[level] == "body") {
    if (kind[level] ~ /^(file|class|body)$/) declare(statement, kind[level])
    statement = ""
  }
}

function finish() {
  if (file != "" && (level || broken || closing != "")) print file, number, "unbalanced"
}

FNR == 1 {
  finish()
  file = FILENAME
  level = parens = broken = 0
  statement = closing = ""
  kind[0] = "file"
  directive = 0
}

{
  number = FNR
  if (directive || (closing == "" && $0 ~ /^[ \t]*#/)) {
    directive = $0 ~ /\\$/
    next
  }
  text = plain($0)
  while (match(text, /[(){};]/)) {
    mark = substr(text, RSTART, 1)
    rest = substr(text, RSTART + 1)
    add(substr(text, 1, RSTART - 1))
    take(mark)
    text = rest
  }
  add(text " ")
}

END { finish() }
