#include "mantissa/app/api/runs.h"

#include "mantissa/lab/list_runs.h"
#include "mantissa/lab/run_table.h"

namespace mantissa::api {

RunList list_runs(const std::filesystem::path& folder) {
  const lab::RunList list = lab::list_runs(folder);
  RunList result{lab::to_text(list), lab::to_json(list), list.faults};
  for (const lab::ListedRun& run : list.runs) {
    if (!run.fault.empty()) result.warnings.push_back(run.fault);
  }
  return result;
}

}  // namespace mantissa::api
