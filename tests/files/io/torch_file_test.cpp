// Checkpoints of PyTorch. tools/golden_pth.py writes the files, and the same tensors as safetensors.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/disk/temporary.h"
#include "files/io/torch_testing.h"
#include "mantissa/core/base/error.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/pth/torch_file.h"
#include "mantissa/files/io/pth/torch_layout.h"

namespace mantissa::io::pth {
namespace {

using test::message_of;
using test::pickle_of_tensor;
using test::zip_of;
using test::ZipPart;

const std::filesystem::path kFolder = std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/files/io/pth";

template <class Source>
std::string bytes_of_tensor(const Source& source, const TensorInfo& tensor) {
  std::string bytes(tensor.end - tensor.begin, '\0');
  source.read(tensor, std::as_writable_bytes(std::span(bytes)), 0);
  return bytes;
}

class GoldenTorchFile : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTorchFile, HasTheTensorsThatPyTorchSaved) {
  for (const char* protocol : {"2", "5"}) {
    const TorchFile file(kFolder / (GetParam() + "_" + protocol + ".pth"));
    const SafetensorsReader expected(kFolder / (GetParam() + ".safetensors"));
    ASSERT_EQ(file.tensors().size(), expected.tensors().size());
    for (const TensorInfo& tensor : file.tensors()) {
      const TensorInfo* same = expected.find(tensor.name);
      ASSERT_NE(same, nullptr) << tensor.name;
      EXPECT_EQ(tensor.dtype, same->dtype) << tensor.name;
      EXPECT_EQ(tensor.shape, same->shape) << tensor.name;
      EXPECT_EQ(bytes_of_tensor(file, tensor), bytes_of_tensor(expected, *same)) << tensor.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenTorchFile, ::testing::Values("dtypes", "views", "nested"),
                         [](const auto& info) { return info.param; });

TEST(TorchFile, AnyRangeOfAViewIsReadAsAllOfItIs) {
  const TorchFile file(kFolder / "views_2.pth");
  for (const TensorInfo& tensor : file.tensors()) {
    const std::string whole = bytes_of_tensor(file, tensor);
    for (std::size_t first = 0; first <= whole.size(); first += 3) {
      std::string part(std::min<std::size_t>(5, whole.size() - first), '\0');
      file.read(tensor, std::as_writable_bytes(std::span(part)), first);
      EXPECT_EQ(part, whole.substr(first, part.size())) << tensor.name << " from " << first;
    }
  }
}

TEST(TorchFile, TensorsOfOneMemoryAreKnown) {
  const TorchFile file(kFolder / "views_2.pth");
  EXPECT_EQ(file.same_as(file.tensors()[0]), std::vector<std::string>{"same"});
  EXPECT_TRUE(file.same_as(file.tensors()[2]).empty());
}

TEST(TorchFile, NotesNameWhatIsLeftOut) {
  const std::vector<std::string> notes = TorchFile(kFolder / "nested_2.pth").notes();
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_NE(notes[0].find("only the entry \"model\" is read; left out: \"optimizer\""), std::string::npos);
  EXPECT_NE(notes[1].find("not tensors: \"bytes\", \"number\""), std::string::npos);
}

TEST(TorchFile, TensorsThatPyTorchNegatesOnReadingAreRefusedByName) {
  for (const char* bit : {"negative", "conjugate"}) {
    const std::string message =
        message_of<FileError>([&] { TorchFile{kFolder / fmt::format("{}.pth", bit)}; });
    EXPECT_NE(message.find(fmt::format("tensor \"layer.weight\" has PyTorch's {} bit", bit)),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("Fix: in Python, save tensor.resolve_conj().resolve_neg()"), std::string::npos);
  }
}

class TorchArchive : public test::TemporaryFolder {
 protected:
  std::filesystem::path path() const { return folder / "model.pth"; }
  std::string fault(std::string_view contents) const {
    test::put(path(), contents);
    return message_of<FileError>([&] { TorchFile{path()}; });
  }
  static std::vector<ZipPart> parts(std::string pickle) {
    return {{"a/data.pkl", std::move(pickle)}, {"a/data/0", std::string(24, '\x3f')}};
  }
  std::string fault_of(const std::string& pickle) const { return fault(zip_of(parts(pickle))); }
};

TEST_F(TorchArchive, Zip64SizesAreRead) {
  std::vector<ZipPart> all = parts(pickle_of_tensor(6, 0, "\x02\x03", "\x03\x01"));
  for (ZipPart& part : all) part.zip64 = true;
  test::put(path(), zip_of(all));
  const TorchFile file(path());
  EXPECT_EQ(bytes_of_tensor(file, file.tensors()[0]), std::string(24, '\x3f'));
}

TEST_F(TorchArchive, OtherArchivesAreRefused) {
  const std::string pickle = pickle_of_tensor(6, 0, "\x06", "\x01");
  const auto with = [&](const ZipPart& part) {
    std::vector<ZipPart> all = parts(pickle);
    all.push_back(part);
    return zip_of(all);
  };
  EXPECT_NE(fault(with({"a/x", "", 8})).find("its entry \"a/x\" is compressed"), std::string::npos);
  EXPECT_NE(fault(with({"a/x", "", 0, 1})).find("encrypted"), std::string::npos);
  EXPECT_NE(fault(with({"a/data/0", ""})).find("two entries named"), std::string::npos);
  EXPECT_NE(fault(with({"a/byteorder", "big"})).find("\"big\"-endian"), std::string::npos);
  EXPECT_NE(fault(with({"a/constants.pkl", ""})).find("TorchScript"), std::string::npos);
  EXPECT_NE(fault(with({"b/data.pkl", ""})).find("several checkpoints"), std::string::npos);
  EXPECT_NE(fault(zip_of({{"x", "y"}})).find("without data.pkl"), std::string::npos);
  EXPECT_NE(fault(zip_of({{"a/data.pkl", pickle}})).find("no storage \"0\""), std::string::npos);
  EXPECT_NE(fault("").find("is empty. Fix: download"), std::string::npos);
  test::put(path(), with({"../../etc/passwd", "x"}));
  EXPECT_EQ(TorchFile(path()).tensors().size(), 1U);  // no entry is a path
}

TEST_F(TorchArchive, TheOldFormatIsRefusedWithACure) {
  const std::string message = message_of<FileError>([] { TorchFile{kFolder / "old.pth"}; });
  EXPECT_NE(message.find("old format. Fix: load and save it again with torch 1.6 or later"),
            std::string::npos);
}

TEST_F(TorchArchive, EntriesThatOverlapAreRefused) {
  std::string zip = zip_of(parts(pickle_of_tensor(6, 0, "\x06", "\x01")));
  const std::size_t first = zip.find("PK\x01\x02"), second = zip.find("PK\x01\x02", first + 1);
  std::uint32_t size = 0;
  std::memcpy(&size, zip.data() + first + 24, sizeof(size));
  size += 40;  // into the next entry
  for (const std::size_t at : {first + 20, first + 24}) std::memcpy(zip.data() + at, &size, sizeof(size));
  EXPECT_NE(fault(zip).find("overlap"), std::string::npos);
  size = 0x7fffffff;
  for (const std::size_t at : {second + 20, second + 24}) std::memcpy(zip.data() + at, &size, sizeof(size));
  EXPECT_NE(fault(zip).find("is truncated"), std::string::npos);
}

TEST_F(TorchArchive, TensorsBeyondTheirStorageAreRefused) {
  EXPECT_NE(fault_of(pickle_of_tensor(6, 1, "\x06", "\x01")).find("reaches beyond its storage of 6"),
            std::string::npos);
  EXPECT_NE(fault_of(pickle_of_tensor(6, 0, "\x02\x04", "\x03\x01")).find("reaches beyond"),
            std::string::npos);
  EXPECT_NE(fault_of(pickle_of_tensor(7, 0, "\x07", "\x01")).find("needs a storage of 28 bytes"),
            std::string::npos);
  EXPECT_NE(fault_of(pickle_of_tensor(6, 0, "\x06", "\x01\x01")).find("more strides"), std::string::npos);
  const std::string dims(5, '\x7f'), zeros(5, '\0');
  EXPECT_NE(fault_of(pickle_of_tensor(6, 0, dims, zeros)).find("brings the tensors to"), std::string::npos);
  EXPECT_NE(fault_of(pickle_of_tensor(6, 0, std::string(40, '\x7f'), std::string(40, '\0')))
                .find("too many elements"),
            std::string::npos);
}

TEST_F(TorchArchive, AFileThatIsCutAnywhereIsRefused) {
  const std::string whole = test::contents_of(kFolder / "views_2.pth");
  for (std::size_t size = 0; size < whole.size(); size += 7) fault(std::string_view(whole).substr(0, size));
}

TEST_F(TorchArchive, AnyChangedByteIsReadOrRefused) {
  const std::string whole = zip_of(parts(pickle_of_tensor(6, 0, "\x02\x03", "\x03\x01")));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char value : {'\0', '\x7f', '\xff'}) {
      std::string changed = whole;
      changed[at] = value;
      test::put(path(), changed);
      try {
        const TorchFile file(path());
        for (const TensorInfo& tensor : file.tensors()) bytes_of_tensor(file, tensor);
      } catch (const FileError&) {
      }
    }
  }
}

class TorchDirectory : public test::TemporaryFolder {};

TEST_F(TorchDirectory, ItsWeightsAreFound) {
  std::filesystem::copy(kFolder / "views_2.pth", folder / "pytorch_model.bin");
  test::put(folder / "training_args.bin", "x");
  EXPECT_EQ(find_weights(folder), folder / "pytorch_model.bin");
  const WeightFiles files(folder);
  EXPECT_NE(files.find("permuted"), nullptr);
  EXPECT_EQ(files.path_of("permuted"), folder / "pytorch_model.bin");
}

TEST_F(TorchDirectory, ShardsAreReadThroughTheirIndex) {
  std::filesystem::copy(kFolder / "views_2.pth", folder / "a.bin");
  std::filesystem::copy(kFolder / "dtypes_2.pth", folder / "b.bin");
  test::put(folder / "pytorch_model.bin.index.json", R"({"weight_map": {"row": "a.bin", "int8": "b.bin"}})");
  const WeightFiles files(folder);
  EXPECT_EQ(files.path_of("int8"), folder / "b.bin");
  EXPECT_EQ(files.find("row")->shape, (std::vector<std::int64_t>{3, 2}));
  std::filesystem::copy(kFolder / "views_2.pth", folder / "c.bin");
  test::put(folder / "pytorch_model.bin.index.json", R"({"weight_map": {"row": "a.bin", "base": "c.bin"}})");
  EXPECT_NE(message_of<FileError>([&] { WeightFiles{folder}; }).find("is also in a.bin"), std::string::npos);
}

TEST_F(TorchDirectory, ValuesAreAlignedAndLargeFilesHaveZip64Sizes) {
  std::vector<TensorToWrite> tensors = {{"small", Dtype::f16, {3}, {}, {}},
                                        {"large", Dtype::f32, {3, 1LL << 29}, {}, {}},
                                        {"last", Dtype::e4m3, {2, 0}, {}, {}},
                                        {"end", Dtype::e4m3, {2, 2}, {}, {}}};
  for (TensorToWrite& tensor : tensors) tensor.fill = [](std::uint64_t, std::span<std::byte>) {};
  const TorchLayout layout(tensors, {{"key", "value"}});
  const std::filesystem::path path = folder / "model.pth";
  {
    std::ofstream out(path, std::ios::binary);
    layout.write_around(
        std::vector<Crc>(tensors.size()), [&](std::uint64_t offset, std::span<const std::byte> bytes) {
          out.seekp(static_cast<std::streamoff>(offset));  // the values stay a hole
          out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        });
  }
  EXPECT_EQ(std::filesystem::file_size(path), layout.bytes());
  const TorchFile file(path);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  EXPECT_EQ(file.metadata().at("key"), "value");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(layout.begin(i) % 64, 0U);
    EXPECT_EQ(file.tensors()[i].name, tensors[i].name);
    EXPECT_EQ(file.tensors()[i].dtype, tensors[i].dtype);
    EXPECT_EQ(file.tensors()[i].shape, tensors[i].shape);
  }
}

TEST(TorchChecksum, PiecesGiveTheChecksumOfAllBytes) {
  const std::string text = "123456789";
  EXPECT_EQ(Crc::of(std::as_bytes(std::span(text))).value, 0xcbf43926U);  // the check value of CRC-32
  Crc joined;
  for (const std::string part : {"12", "", "3456", "789"})
    joined.append(Crc::of(std::as_bytes(std::span(part))));
  EXPECT_EQ(joined.value, 0xcbf43926U);
}

}  // namespace
}  // namespace mantissa::io::pth
