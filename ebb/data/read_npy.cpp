// SPDX-License-Identifier: Apache-2.0
// The format: numpy.lib.format in NumPy's documentation. Its header is a Python dictionary.
#include "ebb/data/read_npy.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "ebb/data/byte_reader.h"
#include "ebb/data/files_read.h"
#include "ebb/data/mapped_file.h"

namespace ebb {
namespace {

constexpr std::size_t kMostDimensions = 64;

struct TypeRow {
  std::string_view name;
  NumberType type;
};
constexpr std::array<TypeRow, 11> kTypes = {{{"b1", NumberType::boolean},
                                             {"i1", NumberType::i8},
                                             {"u1", NumberType::u8},
                                             {"i2", NumberType::i16},
                                             {"u2", NumberType::u16},
                                             {"i4", NumberType::i32},
                                             {"u4", NumberType::u32},
                                             {"i8", NumberType::i64},
                                             {"f2", NumberType::f16},
                                             {"f4", NumberType::f32},
                                             {"f8", NumberType::f64}}};

struct Header {
  std::string_view type;
  bool fortran = false;
  std::vector<std::int64_t> shape;
};

class HeaderText {
 public:
  HeaderText(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  Header read() {
    Header header;
    unsigned seen = 0;
    need('{');
    while (!next('}')) {
      const std::string_view key = quoted();
      need(':');
      seen |= value(key, header);
      if (!next(',') && peek() != '}') refuse();
    }
    if (seen != 7 || peek() != '\0') refuse();
    return header;
  }

 private:
  unsigned value(std::string_view key, Header& header) {
    if (key == "descr") {
      if (peek() == '[') {
        fail(ErrorCode::invalid_argument, file_, ": a structured array; save its fields alone");
      }
      header.type = quoted();
      return 1;
    }
    if (key == "fortran_order") {
      header.fortran = word("True");
      if (!header.fortran && !word("False")) refuse();
      return 2;
    }
    if (key != "shape") refuse();
    header.shape = sizes();
    return 4;
  }

  std::vector<std::int64_t> sizes() {
    std::vector<std::int64_t> shape;
    need('(');
    while (!next(')')) {
      peek();
      std::int64_t size = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0 || shape.size() == kMostDimensions) refuse();
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      shape.push_back(size);
      if (!next(',') && peek() != ')') refuse();
    }
    return shape;
  }

  std::string_view quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') refuse();
    const std::size_t end = text_.find(quote, 1);
    if (end == std::string_view::npos) refuse();
    const std::string_view found = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return found;
  }

  // What comes after white space; zero at the end.
  char peek() {
    text_.remove_prefix(std::min(text_.find_first_not_of(" \t\n"), text_.size()));
    return text_.empty() ? '\0' : text_.front();
  }
  bool next(char sign) {
    if (peek() != sign) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool word(std::string_view expected) {
    peek();
    if (!text_.starts_with(expected)) return false;
    text_.remove_prefix(expected.size());
    return true;
  }
  void need(char sign) {
    if (!next(sign)) refuse();
  }
  [[noreturn]] void refuse() const {
    fail(ErrorCode::invalid_argument, file_, ": its header is not one that NumPy writes");
  }

  std::string_view text_;
  std::string_view file_;
};

NumberType number_type(std::string_view descr, std::string_view name) {
  const std::string_view order = "<>|=";
  const bool known = !descr.empty() && order.find(descr.front()) != std::string_view::npos;
  const auto row = std::ranges::find(kTypes, known ? descr.substr(1) : descr, &TypeRow::name);
  if (row == kTypes.end()) {
    fail(ErrorCode::invalid_argument, name, ": numbers of type '", descr,
         "'; allowed are bool, i1 i2 i4 i8, u1 u2 u4, f2 f4 f8");
  }
  return row->type;
}

}  // namespace

NumberArray read_npy(std::span<const std::byte> bytes, std::string_view name) {
  ByteReader reader(bytes, name);
  if (reader.text(6) != "\x93NUMPY") reader.refuse("not an .npy file");
  const auto version = reader.little<std::uint8_t>();
  reader.take(1);
  if (version < 1 || version > 3) {
    reader.refuse("an .npy file of version ", int{version}, "; 1 to 3 are read");
  }
  const std::size_t length =
      version == 1 ? reader.little<std::uint16_t>() : reader.little<std::uint32_t>();
  const Header header = HeaderText(reader.text(length), name).read();

  NumberArray array;
  array.type = number_type(header.type, name);
  array.swapped = header.type.starts_with('>');
  array.shape = header.shape;
  const std::size_t size = bytes_of(array.type);
  const std::optional<std::size_t> count = count_within(array.shape, reader.left() / size);
  if (!count || *count * size != reader.left()) {
    reader.refuse("its header says ", shape_text(array.shape), " numbers of ", size, " bytes, ",
                  reader.left(), " bytes follow it");
  }
  array.strides = strides_of(array.shape, header.fortran);
  array.data = reader.take(reader.left());
  return array;
}

NumberArray map_npy(const std::filesystem::path& path, std::string_view origin) {
  auto file = std::make_shared<const MappedFile>(path, origin);
  note_file(path, file->bytes());
  NumberArray array = read_npy(file->bytes(), path.string());
  array.held = std::move(file);
  return array;
}

}  // namespace ebb
