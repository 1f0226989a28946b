// Whose the names in a run directory are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/setup/config/run_config.h"

namespace mantissa::run {

/// The names that a run writes.
struct RunNames {
  std::set<std::string> files;  // in its directory
  std::set<std::string> texts;  // beside the weights of its model or adapter, and in tokenizer/
};
/// `texts`: name and contents of the files that belong to the model's text.
RunNames names_of(const config::RunConfig& config,
                  const std::vector<std::pair<std::string, std::string>>& texts = {});

/// Throws FileError if `out`, whose lock this process holds, cannot become or remain the directory of a run
/// that writes `names` and the states after `step`: if it contains one of them that no run has written, by
/// the list of names in it (core/disk/owned.h) or, for runs of earlier versions, by its states; if a
/// directory that is replaced holds files that this program did not write; or if somebody else's file has an
/// unfinished name.
void check_claim(const std::filesystem::path& out, const RunNames& names, std::int64_t step);

/// Throws FileError if `out` has the model or adapter of an earlier run, which a run that begins would
/// replace. `resumes`: unless they are what an interrupted --overwrite left.
void check_result_stays(const std::filesystem::path& out, bool resumes);

/// Writes the lists that a run of an earlier version lacks: of its directory, with those of `names` that are
/// there, and of what it wrote as a whole.
void adopt_earlier(const std::filesystem::path& out, const RunNames& names);

/// Makes `out`, for which check_claim() holds, the directory of a run that writes `names`, and removes what
/// killed processes left beside its states. Returns why the first of it stays, or "".
std::string claim(const std::filesystem::path& out, const RunNames& names);

/// Removes the files of an earlier run from `out`, for a run that begins. Its model and adapter stay until
/// remove_earlier(), and meanwhile are named in `out` as earlier ones (files/io/model_path.h).
void begin_anew(const std::filesystem::path& out);

/// Removes the earlier run's model and adapter, but `kept`, which this run has written. Throws if one stays,
/// and can be repeated then.
void remove_earlier(const std::filesystem::path& out, std::string_view kept);

}  // namespace mantissa::run
