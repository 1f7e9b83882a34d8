// SPDX-License-Identifier: Apache-2.0
// Files made by hand, byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/data/inflate.h"
#include "tests/message_of.h"

namespace ebb::test {

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

inline void write_file(const std::filesystem::path& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
}

// The lowest `size` bytes, lowest first.
inline std::string little(std::uint64_t value, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}
inline std::string big(std::uint64_t value, std::size_t size) {
  const std::string text = little(value, size);
  return {text.rbegin(), text.rend()};
}
template <class T>
std::string numbers(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// One stored block of deflate, RFC 1951.
inline std::string stored(const std::string& content) {
  return '\1' + little(content.size(), 2) + little(~content.size(), 2) + content;
}
// RFC 1950.
inline std::string zlib_stream(const std::string& content) {
  std::uint32_t a = 1;
  std::uint32_t b = 0;
  for (const char c : content) {
    a = (a + static_cast<unsigned char>(c)) % 65521;
    b = (b + a) % 65521;
  }
  return "\x78\x01" + stored(content) + big(b << 16 | a, 4);
}
// RFC 1952.
inline std::string gzip_member(const std::string& content) {
  std::uint32_t crc = ~0U;
  for (const char c : content) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320U : 0U);
  }
  return std::string("\x1f\x8b\x08\0\0\0\0\0\0\3", 10) + stored(content) + little(~crc, 4) +
         little(content.size(), 4);
}
inline bool can_inflate() {
  try {
    inflated(bytes_of(zlib_stream("")), "");
  } catch (const Error& error) {
    return error.code() != ErrorCode::unavailable;
  }
  return true;
}

inline std::string idx(const std::vector<std::uint32_t>& shape, const std::string& values) {
  std::string text = std::string("\0\0\x08", 3) + static_cast<char>(shape.size());
  for (const std::uint32_t size : shape) text += big(size, 4);
  return text + values;
}

inline std::string mat_header() { return std::string(124, ' ') + std::string("\0\1IM", 4); }
inline std::string mat_element(std::uint32_t type, const std::string& content) {
  return little(type, 4) + little(content.size(), 4) + content +
         std::string((8 - content.size() % 8) % 8, '\0');
}
// Class 6 is double, whatever the type of the numbers.
inline std::string mat_variable(const std::string& name, const std::vector<std::int32_t>& shape,
                                std::uint32_t type, const std::string& content,
                                std::uint32_t flags = 6) {
  return mat_element(14, mat_element(6, little(flags, 8)) + mat_element(5, numbers(shape)) +
                             mat_element(1, name) + mat_element(type, content));
}

// `head` is the dictionary of the header.
inline std::string npy_with(const std::string& head, const std::string& data) {
  return std::string("\x93NUMPY\1\0", 8) + little(head.size(), 2) + head + data;
}
inline std::string npy(const std::string& type, const std::string& shape, const std::string& data) {
  return npy_with(
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }   \n", data);
}

inline std::string wav_chunk(const std::string& name, const std::string& content) {
  return name + little(content.size(), 4) + content + std::string(content.size() % 2, '\0');
}
inline std::string wav_format(int kind, int channels, int bits, std::uint32_t rate = 8000) {
  const auto frame = static_cast<std::uint64_t>(channels * bits / 8);
  return wav_chunk("fmt ", little(static_cast<std::uint64_t>(kind), 2) +
                               little(static_cast<std::uint64_t>(channels), 2) + little(rate, 4) +
                               little(rate * frame, 4) + little(frame, 2) +
                               little(static_cast<std::uint64_t>(bits), 2));
}
inline std::string wav_file(const std::string& chunks) {
  return "RIFF" + little(chunks.size() + 4, 4) + "WAVE" + chunks;
}
inline std::string wav(const std::vector<std::int16_t>& samples, std::uint32_t rate = 8000) {
  return wav_file(wav_format(1, 1, 16, rate) + wav_chunk("data", numbers(samples)));
}

inline std::string camera_event(int x, int y, std::uint32_t polarity, std::uint32_t time) {
  return std::string{static_cast<char>(x), static_cast<char>(y)} + big(polarity << 23 | time, 3);
}

}  // namespace ebb::test
