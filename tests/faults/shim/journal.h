// The journal of what a process did to the files below a directory, in order.
#pragma once

#include <cstdint>

namespace mantissa::faults {

enum class Action : std::uint32_t {
  create,    // path did not exist and was opened for writing; `offset`: its mode
  truncate,  // path has `offset` bytes now
  write,     // `data` at `offset` of path
  sync,      // file or directory
  rename,    // path to other, which it replaces
  exchange,  // path and other
  link,      // other is another name of path
  symlink,   // path is a link to other
  remove,    // a file
  mkdir,     // `offset`: its mode
  rmdir,     //
  print,     // `data` went to standard output
  mode,      // `offset`: the new mode of path
  unknown,   // a call that the simulator does not know, named by path
};

/// Precedes path, other and data, without gaps between them.
struct RecordHeader {
  Action action{};
  std::uint32_t path_size = 0, other_size = 0, data_size = 0;
  std::int64_t offset = 0;
};

}  // namespace mantissa::faults
