// Models and data of the web: where they will be, and the commands that download them.
#pragma once

#include <string>

namespace mantissa::cli {

struct Download {
  std::string path;     // in the current directory
  std::string command;  // empty: nothing to download
  bool of_hub = false;  // the usual files of a model of Hugging Face's hub
};

/// Returns the model that an https address or, without a file of this name, a name of Hugging Face's hub
/// ("ORG/NAME") stands for. Any other text is a path.
Download download_of_model(const std::string& model);
/// Returns the file of data that an https address stands for. Any other text is a path.
Download download_of_data(const std::string& source);

}  // namespace mantissa::cli
