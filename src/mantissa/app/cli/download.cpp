#include "mantissa/app/cli/download.h"

#include <fmt/format.h>

#include <vector>

#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/hub.h"
#include "mantissa/core/disk/look.h"

namespace mantissa::cli {
namespace {

constexpr std::string_view kHub = "https://huggingface.co/";

bool is_address(std::string_view text) {
  return text.starts_with("https://") || text.starts_with("http://");
}

/// Returns the download of the files of a model that most models have.
Download of_hub(const std::string& name) {
  const std::vector<std::string> words = {
      "curl",
      "-fL",
      "--create-dirs",
      "-o",
      name + "/#1",
      std::string(kHub) + name +
          "/resolve/main/{config.json,tokenizer.json,tokenizer_config.json,model.safetensors}"};
  return {name, shell_words(words), true};
}

}  // namespace

Download download_of_model(const std::string& model) {
  const bool address = is_address(model);
  std::string name = model.starts_with(kHub) ? model.substr(kHub.size()) : address ? "" : model;
  const std::vector<std::string_view> parts = split_words(name, "/");
  const bool tree = parts.size() == 4 && parts[2] == "tree" && parts[3] == "main";
  const bool two = parts.size() == 2 || (address && tree);
  if (two && disk::is_hub_name(parts[0]) && disk::is_hub_name(parts[1]) && (address || !disk::exists(model)))
    return of_hub(fmt::format("{}/{}", parts[0], parts[1]));
  return download_of_data(model);
}

Download download_of_data(const std::string& source) {
  if (!is_address(source)) return {source, {}};
  std::string address = source.substr(0, source.find_first_of("?#"));
  // A page of the hub shows a file; "resolve" is the file.
  const std::size_t page = address.starts_with(kHub) ? address.find("/blob/") : std::string::npos;
  if (page != std::string::npos) address.replace(page, 6, "/resolve/");
  std::string name = last_name(address);
  const std::string from = page == std::string::npos ? source : address;
  return {name, shell_words(std::vector<std::string>{"curl", "-fL", "-o", name, from})};
}

}  // namespace mantissa::cli
