#include "mantissa/text/puzzles/kk_file.h"

#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/output.h"

namespace mantissa::text {

void write_kk(const KkOptions& options, const std::filesystem::path& out, bool overwrite) {
  disk::check_output({out, disk::Shape::stream, overwrite});
  std::string rows;
  for (const KkPuzzle& p : generate(options)) rows += to_jsonl_row(p) + '\n';
  disk::write_file_atomic(disk::given(out, overwrite), rows);
}

}  // namespace mantissa::text
