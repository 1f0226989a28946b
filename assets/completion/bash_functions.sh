_mantissa_words() {
  local found; mapfile -t found < <(compgen -W "$1" -- "$word"); COMPREPLY+=("${found[@]}")
}
_mantissa_open() { compopt -o nospace; _mantissa_words "$1"; }
_mantissa_files() {
  compopt -o filenames
  local found; mapfile -t found < <(compgen "${1:--f}" -- "$word"); COMPREPLY+=("${found[@]}")
}
_mantissa() {
  COMPREPLY=()
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} at=$COMP_CWORD first=1
