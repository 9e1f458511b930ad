// Reads the float32 .npy files of the fixtures.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace carat::test {

struct Matrix {
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::vector<float> values;
  const float* row(std::uint64_t r) const { return values.data() + r * columns; }
};

/// A C-ordered little-endian float32 array of two dimensions; empty when the file is anything else.
inline Matrix read_npy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream stream;
  stream << file.rdbuf();
  const std::string bytes = stream.str();
  if (bytes.size() < 10 || bytes.compare(1, 5, "NUMPY") != 0) return {};
  const std::size_t header = static_cast<unsigned char>(bytes[8]) + 256U * static_cast<unsigned char>(bytes[9]);
  const std::string description = bytes.substr(10, header);
  const std::size_t shape = description.find("'shape': (");
  if (description.find("'<f4'") == std::string::npos || shape == std::string::npos) return {};
  Matrix matrix;
  unsigned long long rows = 0;
  unsigned long long columns = 0;
  if (std::sscanf(description.c_str() + shape, "'shape': (%llu, %llu", &rows, &columns) != 2) return {};
  matrix.rows = rows;
  matrix.columns = columns;
  matrix.values.resize(rows * columns);
  if (bytes.size() - 10 - header != matrix.values.size() * sizeof(float)) return {};
  bytes.copy(reinterpret_cast<char*>(matrix.values.data()), matrix.values.size() * sizeof(float), 10 + header);
  return matrix;
}

}  // namespace carat::test
