// Replayed objectives equal an independent implementation in PyTorch (tools/golden_objective.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"
#include "mantissa/files/io/safetensors.h"
#include "mantissa/files/io/widen.h"
#include "mantissa/lab/objective/replay.h"

namespace mantissa::lab {
namespace {

namespace fs = std::filesystem;

std::vector<double> values_of(const io::SafetensorsReader& file, const io::TensorInfo& tensor) {
  std::vector<std::byte> bytes(tensor.end - tensor.begin);
  file.read(tensor, bytes);
  std::vector<double> out(static_cast<std::size_t>(tensor.count()));
  io::widen(bytes, tensor.dtype, std::span(out));
  return out;
}

class ObjectiveReplayTest : public test::TemporaryFolder {
 protected:
  /// Replays a golden case and compares every tensor.
  void compare(const fs::path& path) {
    SCOPED_TRACE(path.filename().string());
    const io::SafetensorsReader golden(path);
    const auto golden_case = nlohmann::json::parse(golden.metadata().at("case"));
    const ObjectiveRequest request{.name = golden_case["objective"],
                                   .in = path,
                                   .out = folder / "out.safetensors",
                                   .overrides = golden_case["overrides"].get<std::vector<std::string>>()};
    replay_objective(request);
    const io::SafetensorsReader got(request.out);
    std::size_t expected = 0;
    for (const io::TensorInfo& tensor : golden.tensors()) {
      if (!tensor.name.starts_with("expected.")) continue;
      ++expected;
      const io::TensorInfo* ours = got.find(tensor.name.substr(9));
      ASSERT_NE(ours, nullptr) << tensor.name;
      EXPECT_EQ(ours->dtype, io::Dtype::f32);
      EXPECT_EQ(ours->shape, tensor.shape) << tensor.name;
      compare(values_of(got, *ours), values_of(golden, tensor), tensor.name);
    }
    EXPECT_EQ(got.tensors().size(), expected);
  }

  /// The result is the golden value, of f64, rounded to f32: half a unit in the last place. Sums in double of
  /// another order lose far less than 1e-11 of the largest element.
  static void compare(const std::vector<double>& got, const std::vector<double>& want,
                      const std::string& name) {
    ASSERT_EQ(got.size(), want.size());
    double largest = 1;
    for (const double w : want) largest = std::max(largest, std::abs(w));
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 0x1.00001p-24 * std::abs(want[i]) + 1e-11 * largest) << name << " " << i;
  }
};

TEST_F(ObjectiveReplayTest, EqualsPyTorch) {
  std::vector<fs::path> cases;
  for (const auto& file : fs::directory_iterator(fs::path(MANTISSA_SOURCE_DIR) / "tests/golden/objective"))
    cases.push_back(file.path());
  ASSERT_EQ(cases.size(), 4 * objective_names().size());
  std::ranges::sort(cases);
  for (const fs::path& path : cases) compare(path);
}

}  // namespace
}  // namespace mantissa::lab
