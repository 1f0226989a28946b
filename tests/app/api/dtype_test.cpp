// Tensors of a dtype that their use does not allow are errors before anything runs, with the name and the
// cures.
#include <gtest/gtest.h>

#include <cstring>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/files/io/safetensors.h"
#include "mantissa/files/io/state.h"

namespace mantissa {
namespace {

using testing::into;
using testing::TemporaryFolder;
using testing::tiny_config;

template <class E, class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

class DtypeMistakes : public ::testing::Test {
 protected:
  void train(const std::string& policy) {
    api::train(api::Config::parse(tiny_config(2, policy)), into(folder / "run"));
  }
  /// The message of a trace over tensors of these dtypes, 16 bytes a tensor.
  std::string traced(io::Dtype ids, io::Dtype labels) const {
    const std::vector<std::byte> zeros(16);
    const auto tensor = [&](const char* name, io::Dtype dtype) {
      return io::TensorToWrite{
          name, dtype, {1, static_cast<std::int64_t>(16 / io::bytes_of(dtype))}, zeros, nullptr};
    };
    io::write_safetensors(folder / "ids", std::vector{tensor("input_ids", ids), tensor("labels", labels)});
    api::TraceOptions o;
    o.model = folder / "run/model";
    o.tokens = folder / "ids";
    o.out = folder / "trace";
    return message_of<DtypeError>([&] { api::trace(o); });
  }

  TemporaryFolder folder;
};

TEST_F(DtypeMistakes, IdsAndLabelsAreIntegers) {
  train("32-true");
  const std::string file = (folder / "ids").string();
  EXPECT_EQ(
      traced(io::Dtype::f32, io::Dtype::i32),
      "input_ids: is F32 in " + file +
          ", but ids are I32 or I64 and no policy converts them; save it with tensor.to(torch.int64) in "
          "PyTorch, or .astype(numpy.int32) in NumPy");
  EXPECT_EQ(traced(io::Dtype::i64, io::Dtype::bf16).find("labels: is BF16 in " + file + ", but labels are"),
            0U);
  EXPECT_EQ(traced(io::Dtype::boolean, io::Dtype::i64).find("input_ids: is BOOL in"), 0U);
  EXPECT_FALSE(std::filesystem::exists(folder / "trace"));
}

TEST_F(DtypeMistakes, TokenFilesHoldIntegers) {
  std::vector<float> ids(4096);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<float>(i % 251);
  const std::string file = (folder / "ids.bin").string();
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(4 * ids.size()));
  const std::vector<std::string> set = {"data.source=\"" + file + "\"", "data.format=\"tokens\""};
  const std::string said = message_of<DtypeError>(
      [&] { api::train(api::Config::parse(tiny_config(2, "32-true"), set), into(folder / "run")); });
  EXPECT_EQ(said.find("\"" + file + "\": holds ids as f32, but a token file holds little-endian uint16"), 0U)
      << said;
}

TEST_F(DtypeMistakes, AStateKeepsItsRangeOnResume) {
  train("32-true");
  // The state with a weight that f16 cannot hold.
  const io::FoundState found = io::find_states(folder / "run").back();
  std::vector<std::vector<std::byte>> bytes;
  std::vector<io::TensorToWrite> tensors;
  io::StateHeader header;
  {
    const io::StateReader state(found.path);
    header = state.header();
    for (const io::TensorInfo& t : state.tensors().tensors()) {
      bytes.emplace_back(t.end - t.begin);
      state.tensors().read(t.name, bytes.back());
      if (t.name == "master.model.norm.weight") {
        const float large = 1e6F;
        std::memcpy(bytes.back().data() + 4 * sizeof(float), &large, sizeof(large));
      }
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const io::TensorInfo& t = state.tensors().tensors()[i];
      tensors.push_back({t.name, t.dtype, t.shape, bytes[i], nullptr});
    }
  }
  io::write_state(folder / "run", header, tensors, 3);
  api::TrainOptions o = into(folder / "run");
  o.resume = 0;
  const std::string said =
      message_of<DtypeError>([&] { api::train(api::Config::parse(tiny_config(4, "16-true")), o); });
  EXPECT_EQ(
      said.find(
          "master.model.norm.weight: is F32 in " + found.path.string() +
          " and 1e+06 at element 4, but policy \"16-true\" keeps f16 here, with the largest value 65504;"),
      0U)
      << said;
}

}  // namespace
}  // namespace mantissa
