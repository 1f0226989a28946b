// A resumable state, as it is and after its checksums are corrected: state.json and state.safetensors.
#include <nlohmann/json.hpp>

#include "bundle.h"
#include "check.h"
#include "mantissa/files/io/hash.h"
#include "mantissa/files/io/state.h"
#include "mantissa/files/io/state_header.h"
#include "read_tensors.h"
#include "target.h"

using namespace mantissa;

namespace {

std::string hash_of(std::string_view bytes) {
  io::Hash64 hash;
  hash.update(std::as_bytes(std::span(bytes)));
  return io::hex(hash.digest());
}

/// Corrects the checksums in state.json.
void seal(std::vector<fuzz::BundledFile>& files) {
  const auto header = std::ranges::find(files, "state.json", &fuzz::BundledFile::name);
  if (header == files.end()) return;
  nlohmann::json json = nlohmann::json::parse(header->bytes, nullptr, false);
  if (!json.is_object()) return;
  for (const fuzz::BundledFile& file : files) {
    if (!json.contains("files") || !json["files"].is_array()) continue;
    for (nlohmann::json& entry : json["files"]) {
      if (!entry.is_object() || !entry.contains("name") || entry["name"] != file.name) continue;
      entry["bytes"] = file.bytes.size();
      entry["xxh64"] = hash_of(file.bytes);
    }
  }
  json.erase("xxh64");
  fuzz::expect_only_errors([&] { header->bytes = io::sealed(std::move(json)); });
}

void read(const std::vector<fuzz::BundledFile>& files) {
  const fuzz::Folder folder;
  const std::filesystem::path state = folder.path() / "state" / "step-00000003";
  std::filesystem::create_directories(state);
  for (const fuzz::BundledFile& file : files) folder.write("state/step-00000003/" + file.name, file.bytes);
  fuzz::expect_only_errors([&] {
    fuzz::require(io::find_states(folder.path()).size() == 1, "a state is found");
    const io::StateReader reader(state);
    const nlohmann::json again = io::json_of_header(reader.header());
    fuzz::require(
        io::open_sealed(nlohmann::json::parse(io::sealed(again)), "state.json") == reader.header() ||
            reader.header().loss != reader.header().loss,
        "a header that is written again is the same");
    io::WeightFiles weights(state / io::kStateTensors);
    fuzz::read_tensors(weights);
    for (const io::SafetensorsReader& shard : weights.shards()) io::amax_of_state(shard);
  });
}

}  // namespace

MANTISSA_FUZZ_TARGET(state, fuzz::mutate_bundle) {
  auto files = fuzz::parse_bundle({reinterpret_cast<const char*>(data), size});
  if (!files) return 0;
  read(*files);
  seal(*files);
  read(*files);
  return 0;
}
