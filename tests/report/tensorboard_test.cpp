#include "mantissa/report/tensorboard.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"

namespace mantissa::report {
namespace {

const std::string kLongTag(200, 'x');  // its length takes two bytes

class TensorBoard : public test::TemporaryFolder {};

template <class T>
T take(std::string_view& bytes) {
  T value{};
  if (bytes.size() < sizeof(T)) throw std::runtime_error("the bytes end early");
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return value;
}

// Returns the payloads of a file of records, after checking every checksum.
std::vector<std::string> payloads_of(const std::string& file) {
  std::vector<std::string> payloads;
  const auto unmasked = [](std::uint32_t masked) {
    const std::uint32_t rotated = masked - 0xa282ead8U;
    return rotated >> 17 | rotated << 15;
  };
  for (std::string_view rest = file; !rest.empty();) {
    const std::string_view length_bytes = rest.substr(0, 8);
    const auto length = take<std::uint64_t>(rest);
    EXPECT_EQ(unmasked(take<std::uint32_t>(rest)), crc32c(length_bytes));
    payloads.emplace_back(rest.substr(0, length));
    rest.remove_prefix(length);
    EXPECT_EQ(unmasked(take<std::uint32_t>(rest)), crc32c(payloads.back()));
  }
  return payloads;
}

// A message in protobuf's wire format: field number to the contents of its occurrences.
using Message = std::multimap<std::uint64_t, std::string>;

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take<std::uint8_t>(bytes);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

Message message_of_bytes(std::string_view bytes) {
  Message message;
  while (!bytes.empty()) {
    const std::uint64_t tag = take_varint(bytes);
    if ((tag & 7) == 0) {
      message.emplace(tag >> 3, std::to_string(take_varint(bytes)));
      continue;
    }
    const std::size_t length = (tag & 7) == 1 ? 8 : (tag & 7) == 5 ? 4 : take_varint(bytes);
    message.emplace(tag >> 3, bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return message;
}

template <class T>
T number(const std::string& bytes) {
  std::string_view view = bytes;
  return take<T>(view);
}

std::map<std::string, float> scalars_of(const Message& event) {
  std::map<std::string, float> scalars;
  const Message summary = message_of_bytes(event.find(5)->second);
  for (const auto& [field, bytes] : summary) {
    EXPECT_EQ(field, 1U);
    const Message value = message_of_bytes(bytes);
    scalars[value.find(1)->second] = number<float>(value.find(2)->second);
  }
  return scalars;
}

TEST_F(TensorBoard, ChecksumsAreThoseOfRfc3720) {
  std::array<char, 32> bytes{};
  const auto crc = [&] { return crc32c(std::string_view(bytes.data(), bytes.size())); };
  EXPECT_EQ(crc(), 0x8a9136aaU);
  bytes.fill('\xff');
  EXPECT_EQ(crc(), 0x62a8ab43U);
  for (int i = 0; i < 32; ++i) bytes[static_cast<std::size_t>(i)] = static_cast<char>(i);
  EXPECT_EQ(crc(), 0x46dd794eU);
  for (int i = 0; i < 32; ++i) bytes[static_cast<std::size_t>(i)] = static_cast<char>(31 - i);
  EXPECT_EQ(crc(), 0x113fdb5cU);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
}

TEST_F(TensorBoard, AnEventHoldsTheScalarsOfItsStep) {
  const std::vector<std::pair<std::string_view, double>> scalars = {
      {"loss", 0.1}, {"inf", std::numeric_limits<double>::infinity()}, {kLongTag, -2}};
  const Message event = message_of_bytes(scalar_event(1.5e9 + 0.25, 1LL << 40, scalars));
  EXPECT_EQ(number<double>(event.find(1)->second), 1.5e9 + 0.25);
  EXPECT_EQ(event.find(2)->second, std::to_string(1LL << 40));
  const auto read = scalars_of(event);
  EXPECT_EQ(read.size(), 3U);
  EXPECT_EQ(read.at("loss"), 0.1F);
  EXPECT_TRUE(std::isinf(read.at("inf")));
  EXPECT_EQ(read.at(kLongTag), -2.0F);
}

TEST_F(TensorBoard, AFileBeginsWithItsVersionAndTheFirstStepItSpeaksOf) {
  const TensorBoardWriter writer(folder, 50);
  EXPECT_EQ(writer.path().parent_path(), folder);
  EXPECT_EQ(writer.path().filename().string().rfind("events.out.tfevents.", 0), 0U);
  const std::vector<std::string> payloads = payloads_of(test::contents_of(writer.path()));
  ASSERT_EQ(payloads.size(), 2U);
  EXPECT_EQ(message_of_bytes(payloads[0]).find(3)->second, "brain.Event:2");
  const Message start = message_of_bytes(payloads[1]);
  EXPECT_EQ(start.find(2)->second, "51");
  EXPECT_EQ(message_of_bytes(start.find(7)->second).find(1)->second, "1");
}

TEST_F(TensorBoard, StepsAndValidationsAreThereAtOnce) {
  TensorBoardWriter writer(folder);
  writer.write({.step = 3,
                .loss = 5.5,
                .tokens = 1,
                .grad_norm = 0.25,
                .lr = 1e-4,
                .loss_scale = 65536,
                .tokens_per_second = 1000});
  writer.write({.step = 4,
                .loss = 5.25,
                .tokens = 2,
                .grad_norm = 0.5,
                .lr = 2e-4,
                .loss_scale = {},
                .tokens_per_second = 2000});
  writer.write_scalar(4, "validation_loss", 4.5);
  const std::vector<std::string> payloads = payloads_of(test::contents_of(writer.path()));
  ASSERT_EQ(payloads.size(), 5U);
  using Scalars = std::map<std::string, float>;
  EXPECT_EQ(scalars_of(message_of_bytes(payloads[2])), (Scalars{{"loss", 5.5F},
                                                                {"grad_norm", 0.25F},
                                                                {"lr", 1e-4F},
                                                                {"loss_scale", 65536},
                                                                {"tokens_per_second", 1000}}));
  EXPECT_EQ(scalars_of(message_of_bytes(payloads[3])),
            (Scalars{{"loss", 5.25F}, {"grad_norm", 0.5F}, {"lr", 2e-4F}, {"tokens_per_second", 2000}}));
  EXPECT_EQ(scalars_of(message_of_bytes(payloads[4])), (Scalars{{"validation_loss", 4.5F}}));
  EXPECT_EQ(message_of_bytes(payloads[4]).find(2)->second, "4");
}

std::vector<double> doubles_of(const std::string& bytes) {
  std::vector<double> all;
  for (std::string_view rest = bytes; !rest.empty();) all.push_back(take<double>(rest));
  return all;
}

TEST_F(TensorBoard, AHistogramHasABucketForEveryPowerOfTwo) {
  const std::vector<double> values = {
      -6, -2, 0, 0, 0.5, 0.75, 2, 3.5, std::numeric_limits<double>::infinity()};
  Distribution d, zeros;
  d.add(values.data(), 3);
  d.add(values.data() + 3, values.size() - 3);
  const double zero = 0;
  zeros.add(&zero, 1);
  const std::vector<TaggedDistribution> histograms = {{"weights/a", &d}, {"weights/b", &zeros}};
  TensorBoardWriter writer(folder);
  writer.write_histograms(7, histograms);
  const std::vector<std::string> payloads = payloads_of(test::contents_of(writer.path()));
  ASSERT_EQ(payloads.size(), 3U);
  const Message event = message_of_bytes(payloads[2]);
  EXPECT_EQ(event.find(2)->second, "7");
  std::map<std::string, Message> read;
  for (const auto& [field, bytes] : message_of_bytes(event.find(5)->second)) {
    const Message value = message_of_bytes(bytes);
    read[value.find(1)->second] = message_of_bytes(value.find(5)->second);
  }
  ASSERT_EQ(read.size(), 2U);
  const auto of = [&](const char* tag, std::uint64_t field) {
    return doubles_of(read[tag].find(field)->second);
  };
  using Doubles = std::vector<double>;
  EXPECT_EQ(of("weights/a", 1), Doubles{-6});
  EXPECT_EQ(of("weights/a", 2), Doubles{3.5});
  EXPECT_EQ(of("weights/a", 3), Doubles{8}) << "the finite values";
  EXPECT_EQ(of("weights/a", 4), Doubles{-1.25});
  EXPECT_EQ(of("weights/a", 5), Doubles{36 + 4 + 0.25 + 0.5625 + 4 + 12.25});
  EXPECT_EQ(of("weights/a", 6), (Doubles{-4, -2, 0.5, 1, 2, 4}));
  EXPECT_EQ(of("weights/a", 7), (Doubles{1, 1, 2, 2, 0, 2}));
  EXPECT_EQ(of("weights/b", 3), Doubles{1});
  EXPECT_EQ(of("weights/b", 7), Doubles{1});
}

TEST_F(TensorBoard, EveryWriterHasASeparateFile) {
  const TensorBoardWriter first(folder), second(folder);
  EXPECT_NE(first.path(), second.path());
  EXPECT_THROW(TensorBoardWriter writer(folder / "none"), FileError);
}

}  // namespace
}  // namespace mantissa::report
