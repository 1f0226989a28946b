#include "mantissa/app/api/new_config.h"

#include <fmt/format.h>

#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/setup/config/new_config.h"

namespace mantissa::api {
namespace {

ConfigTask to_api(const config::ConfigTask& t) {
  return {std::string(t.name), std::string(t.summary), std::string(t.command),
          std::string(t.data), std::string(t.source),  t.has_model};
}

/// Returns a path of the current directory as one of the directory of `file`, from where a config's paths
/// begin.
std::string from_file(const std::string& path, const std::filesystem::path& file) {
  if (path.empty() || path == "kk") return path;
  const std::filesystem::path folder = std::filesystem::absolute(file).lexically_normal().parent_path();
  return std::filesystem::absolute(path).lexically_normal().lexically_proximate(folder).string();
}

}  // namespace

std::vector<ConfigTask> config_tasks() {
  std::vector<ConfigTask> all;
  for (const config::ConfigTask& task : config::config_tasks()) all.push_back(to_api(task));
  return all;
}

ConfigTask config_task(const std::string& name) {
  return to_api(config::config_task(name));
}

void write_new_config(const NewConfig& o) {
  const config::ConfigTask& task = config::config_task(o.task);
  if (disk::has_name(o.file))
    throw FileError(fmt::format("{}: exists already; choose another name with --out FILE", o.file.string()));
  const config::NewConfig values{o.file.stem().string(), from_file(o.model, o.file),
                                 from_file(o.source, o.file)};
  disk::write_file_atomic(disk::given(o.file, false), config::new_config(task, values));
}

}  // namespace mantissa::api
