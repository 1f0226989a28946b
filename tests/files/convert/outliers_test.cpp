// Outliers among weights: planted ones are found, and healthy matrices have none.
#include "mantissa/files/convert/outliers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "core/disk/temporary.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/files/convert/inspect.h"

namespace mantissa::convert {
namespace {

struct PlantedMatrix {
  std::string name;
  std::size_t rows = 0, columns = 0;
  std::vector<float> values = {};
};

/// Normal values of standard deviation `deviation`.
PlantedMatrix random_matrix(const std::string& name, std::size_t rows, std::size_t columns,
                            float deviation = 0.02F) {
  std::mt19937_64 random(rows * 1000 + columns);
  std::normal_distribution<float> normal(0, deviation);
  PlantedMatrix m{name, rows, columns, std::vector<float>(rows * columns)};
  for (float& x : m.values) x = normal(random);
  return m;
}

class Outliers : public test::TemporaryFolder {
 protected:
  Inspection inspect_all(const std::vector<PlantedMatrix>& matrices, const kernels::Context& ctx = {}) const {
    std::vector<io::TensorToWrite> tensors;
    for (const PlantedMatrix& m : matrices) {
      tensors.push_back({m.name,
                         io::Dtype::f32,
                         {static_cast<std::int64_t>(m.rows), static_cast<std::int64_t>(m.columns)},
                         std::as_bytes(std::span(m.values)),
                         nullptr});
    }
    io::write_safetensors(folder / "w.safetensors", tensors);
    return inspect(folder / "w.safetensors", ctx);
  }
  std::vector<Outlier> outliers(const std::vector<PlantedMatrix>& matrices) const {
    return inspect_all(matrices).outliers;
  }
};

TEST_F(Outliers, AreAbsentFromNormalMatricesOfAllShapes) {
  std::vector<PlantedMatrix> matrices;
  for (const auto& [rows, columns] : {std::pair{8, 8},
                                      {16, 16},
                                      {8, 5000},
                                      {5000, 8},
                                      {100'000, 16},
                                      {16, 100'000},
                                      {300, 700},
                                      {1, 50},
                                      {50, 1}})
    matrices.push_back(random_matrix(std::to_string(rows) + "x" + std::to_string(columns),
                                     static_cast<std::size_t>(rows), static_cast<std::size_t>(columns)));
  std::vector<PlantedMatrix> layers;
  for (int i = 0; i < 4; ++i) {
    const auto size = static_cast<std::size_t>(64 + i);
    layers.push_back(random_matrix("layers." + std::to_string(i) + ".up_proj.weight", size, size,
                                   0.02F * static_cast<float>(1 << i)));
  }
  matrices.insert(matrices.end(), layers.begin(), layers.end());
  EXPECT_TRUE(outliers(matrices).empty());
  EXPECT_EQ(to_text(inspect_all(matrices)).find("outliers"), std::string::npos);
}

TEST_F(Outliers, RowsAreFoundWithTheirRatio) {
  PlantedMatrix m = random_matrix("model.layers.3.mlp.up_proj.weight", 300, 2000);
  for (std::size_t i = 0; i < m.columns; ++i) m.values[17 * m.columns + i] *= 1500;
  for (std::size_t i = 0; i < m.columns; ++i) m.values[18 * m.columns + i] *= 4;
  const std::vector<Outlier> found = outliers({m});
  ASSERT_EQ(found.size(), 1U) << "not of the columns, whose elements in the row all grew alike";
  EXPECT_EQ(found[0].against, Outlier::Against::rows);
  EXPECT_EQ(found[0].index, 17U);
  // The RMS of n normal values is within 4 / √(2n) of their deviation.
  EXPECT_NEAR(found[0].ratio, 1500, 1500 * 4 / std::sqrt(2.0 * 2000));
  EXPECT_NEAR(found[0].norm, 30 * std::sqrt(2000.0), 30 * 4 / std::sqrt(2.0));
  const std::string text = to_text(inspect_all({m}));
  EXPECT_NE(text.find("\noutliers\nmodel.layers.3.mlp.up_proj.weight row 17: RMS 1"), std::string::npos)
      << text;
  const nlohmann::json json = nlohmann::json::parse(to_json(inspect_all({m})))["outliers"];
  ASSERT_EQ(json.size(), 1U);
  EXPECT_EQ(json[0]["axis"], "row");
  EXPECT_EQ(json[0]["index"], 17);
  EXPECT_EQ(json[0]["against"], "rows");
  EXPECT_EQ(json[0]["absmax"], found[0].absmax);
  EXPECT_EQ(json[0]["overflows"], nlohmann::json::array());
}

TEST_F(Outliers, ColumnsAreFoundInEveryFormat) {
  PlantedMatrix m = random_matrix("w", 700, 300);
  for (std::size_t i = 0; i < m.rows; ++i) m.values[i * m.columns + 299] *= 20;
  std::vector<double> wide(m.values.begin(), m.values.end());
  for (const Scalar format : {Scalar::f64, Scalar::bf16, Scalar::f16, Scalar::e5m2}) {
    std::vector<std::byte> codes;
    for (const double x : wide) {
      const std::uint64_t code = encode(x, format);
      for (std::size_t i = 0; i < bytes_of(format); ++i)
        codes.push_back(static_cast<std::byte>(code >> (8 * i)));
    }
    io::write_safetensors(
        folder / "w.safetensors",
        std::vector{io::TensorToWrite{"w", io::dtype_of(format), {700, 300}, codes, nullptr}});
    const std::vector<Outlier> found = inspect(folder / "w.safetensors", {}).outliers;
    ASSERT_EQ(found.size(), 1U) << name(format);
    EXPECT_EQ(found[0].against, Outlier::Against::columns);
    EXPECT_EQ(found[0].index, 299U);
    EXPECT_NEAR(found[0].ratio, 20, 20 * 4 / std::sqrt(2.0 * 700) + 20 * 2 * unit_roundoff(format));
  }
}

TEST_F(Outliers, SingleWeightIsFoundInItsRowAndColumnAndOverflowsF16) {
  PlantedMatrix m = random_matrix("w", 256, 256);
  m.values[5 * 256 + 9] = 7e4F;
  const std::vector<Outlier> found = outliers({m});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].index.value() + found[1].index.value(), 14U);
  EXPECT_GT(found[0].large_product(), 65504.0);
  EXPECT_NE(to_text(inspect_all({m})).find("overflows e4m3, overflows f16"), std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(to_json(inspect_all({m})))["outliers"];
  EXPECT_EQ(json[0]["overflows"], nlohmann::json({"e4m3", "e5m2", "f16"}));
}

TEST_F(Outliers, LayersAreComparedWithTheSameTensorOfTheOthers) {
  std::vector<PlantedMatrix> layers;
  for (const char* part : {"up_proj", "down_proj"}) {
    for (int i = 0; i < 4; ++i)
      layers.push_back(random_matrix("model.layers." + std::to_string(i) + "." + part + ".weight", 64, 96));
  }
  for (float& x : layers[2].values) x *= 10;
  layers[7].values[100] = 4.0F;  // one weight; its row is also an outlier
  const std::vector<Outlier> found = outliers(layers);
  std::map<std::string, Outlier> of_layers;
  for (const Outlier& o : found) {
    if (o.against == Outlier::Against::layers) of_layers[o.tensor] = o;
  }
  ASSERT_EQ(of_layers.size(), 2U);
  EXPECT_NEAR(of_layers.at("model.layers.2.up_proj.weight").ratio, 10, 0.5);
  EXPECT_FALSE(of_layers.at("model.layers.2.up_proj.weight").of_absmax);
  EXPECT_TRUE(of_layers.at("model.layers.3.down_proj.weight").of_absmax);
  layers.resize(3);
  EXPECT_EQ(outliers({layers[1], layers[2]}).size(), 1U) << "the larger of two layers";
  EXPECT_TRUE(outliers({layers[2]}).empty());
}

TEST_F(Outliers, AMuchSmallerLayerIsFoundAndTheOthersAreNot) {
  std::vector<PlantedMatrix> layers;
  for (int i = 0; i < 3; ++i)
    layers.push_back(random_matrix("model.layers." + std::to_string(i) + ".up_proj.weight", 64, 96));
  for (float& x : layers[1].values) x *= 0.01F;
  std::vector<Outlier> found = outliers(layers);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].tensor, layers[1].name);
  EXPECT_NEAR(found[0].ratio, 0.01, 1e-3);
  std::ranges::fill(layers[1].values, 0.0F);
  found = outliers(layers);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].tensor, layers[1].name);
  EXPECT_EQ(found[0].ratio, 0);
  EXPECT_NE(to_text(inspect_all(layers)).find("up_proj.weight: all values are 0"), std::string::npos);
  for (PlantedMatrix& m : layers) std::ranges::fill(m.values, 0.0F);
  EXPECT_TRUE(outliers(layers).empty()) << "zero in every layer";
}

TEST_F(Outliers, ElementsOfVectorsAreFound) {
  std::vector<float> gains(96, 1.0F);
  gains[0] = 0, gains[5] = 3;
  const auto found = [&] {
    io::write_safetensors(
        folder / "v.safetensors",
        std::vector<io::TensorToWrite>{
            {"model.norm.weight", io::Dtype::f32, {96}, std::as_bytes(std::span(gains)), nullptr}});
    return inspect(folder / "v.safetensors", {});
  };
  EXPECT_TRUE(found().outliers.empty());
  gains[17] = -500;
  const Inspection seen = found();
  ASSERT_EQ(seen.outliers.size(), 1U);
  EXPECT_EQ(seen.outliers[0].index, 17U);
  EXPECT_EQ(seen.outliers[0].ratio, 500);
  EXPECT_NE(to_text(seen).find("model.norm.weight element 17: magnitude 500 × the median element's"),
            std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(to_json(seen))["outliers"][0];
  EXPECT_EQ(json["axis"], "element");
  EXPECT_EQ(json["large_product"], nlohmann::json());
}

TEST_F(Outliers, ZeroRowsAndValuesThatAreNotFiniteAreLeftOut) {
  PlantedMatrix m = random_matrix("w", 64, 64);
  for (std::size_t i = 0; i < 40 * 64; ++i) m.values[i] = 0;  // more than half of the rows
  m.values[50 * 64 + 3] = INFINITY;
  m.values[51 * 64 + 3] = NAN;
  EXPECT_TRUE(outliers({m}).empty());
  for (std::size_t i = 0; i < 64; ++i) m.values[60 * 64 + i] *= 100;
  ASSERT_EQ(outliers({m}).size(), 1U);
  EXPECT_EQ(outliers({m})[0].index, 60U);
  std::ranges::fill(m.values, 0.0F);
  EXPECT_TRUE(outliers({m}).empty());
  std::ranges::fill(m.values, NAN);
  EXPECT_TRUE(outliers({m}).empty());
}

TEST_F(Outliers, RowsOfTwoSizesHaveNoTypicalSize) {
  PlantedMatrix m = random_matrix("embed_tokens.weight", 256, 64);
  for (std::size_t i = 0; i < 60 * 64; ++i) m.values[i] *= 20;  // the ids that the data contain
  EXPECT_TRUE(outliers({m}).empty());
}

TEST_F(Outliers, TextListsTheEightLargest) {
  PlantedMatrix m = random_matrix("w", 200, 200);
  for (std::size_t r = 0; r < 11; ++r) {
    for (std::size_t i = 0; i < 200; ++i) m.values[r * 200 + i] *= 100 + static_cast<float>(r) * 50;
  }
  const Inspection found = inspect_all({m});
  EXPECT_EQ(found.outliers.size(), 11U);
  EXPECT_EQ(found.outliers[0].index, 10U);
  EXPECT_NE(to_text(found).find("… and 3 more"), std::string::npos);
}

TEST_F(Outliers, DoNotDependOnThreads) {
  PlantedMatrix m = random_matrix("w", 3000, 300);
  for (std::size_t i = 0; i < 300; ++i) m.values[17 * 300 + i] *= 50;
  for (std::size_t i = 0; i < 3000; ++i) m.values[i * 300 + 7] *= 50;
  EXPECT_EQ(to_json(inspect_all({m}, {.threads = 1})), to_json(inspect_all({m}, {.threads = 3})));
}

}  // namespace
}  // namespace mantissa::convert
