#include "mantissa/files/gguf/foreign_model.h"

#include "mantissa/files/gguf/read_config.h"
#include "mantissa/files/gguf/read_tokenizer.h"

namespace mantissa::gguf {

ForeignModel open_model(std::shared_ptr<const GgufFile> file, std::map<std::string, std::string> metadata) {
  const Architecture& architecture = architecture_of(*file);
  ReadConfig read = read_config(*file, architecture);
  TokenizerFiles tokenizer = read_tokenizer(*file);
  ForeignModel model;
  model.weights =
      std::make_shared<ModelWeights>(file, architecture, read.config, read.ignored, std::move(metadata));
  model.config = std::move(read.config);
  model.files = std::move(tokenizer.files);
  model.notes = std::move(tokenizer.notes);
  return model;
}

}  // namespace mantissa::gguf
