// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <tuple>

#include "ebb/core/error.h"
#include "ebb/core/json.h"
#include "ebb/train/safetensors_header.h"

namespace ebb {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string in_json(std::string_view text) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    fail(ErrorCode::invalid_argument, "safetensors: ", shown_name(text), " is not UTF-8");
  }
}

void check(const TensorView& tensor) {
  const auto bytes = tensor_bytes(tensor.type, tensor.shape);
  if (!bytes || static_cast<std::size_t>(*bytes) != tensor.bytes.size()) {
    fail(ErrorCode::invalid_argument, "safetensors: tensor ", shown_name(tensor.name), " has ",
         tensor.bytes.size(), " bytes; its shape and type make ",
         bytes ? std::to_string(*bytes) : "none that can be");
  }
  if (tensor.name == kNotesKey) {
    fail(ErrorCode::invalid_argument, "safetensors: no tensor may be named ", kNotesKey);
  }
}

std::vector<const TensorView*> in_order(std::span<const TensorView> tensors) {
  std::vector<const TensorView*> order;
  order.reserve(tensors.size());
  for (const TensorView& tensor : tensors) {
    check(tensor);
    order.push_back(&tensor);
  }
  const auto before = [](const TensorView* a, const TensorView* b) {
    const Bytes larger = tensor_type_row(a->type).bytes, smaller = tensor_type_row(b->type).bytes;
    return std::tie(smaller, a->name) < std::tie(larger, b->name);
  };
  std::sort(order.begin(), order.end(), before);
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorView& tensor : tensors) names.emplace_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    fail(ErrorCode::invalid_argument, "safetensors: two tensors are named ", shown_name(*twice));
  }
  return order;
}

std::string header_of(std::span<const TensorView* const> order, const TensorNotes& notes) {
  std::string text = "{";
  if (!notes.empty()) {
    text.append(in_json(kNotesKey)).append(":{");
    for (const auto& [key, value] : notes) {
      text.append(text.back() == '{' ? "" : ",").append(in_json(key)).append(":");
      text.append(in_json(value));
    }
    text += '}';
  }
  std::size_t at = 0;
  for (const TensorView* tensor : order) {
    text.append(text.size() == 1 ? "" : ",").append(in_json(tensor->name));
    text.append(R"(:{"dtype":")")
        .append(tensor_type_row(tensor->type).word)
        .append(R"(","shape":[)");
    for (std::size_t i = 0; i < tensor->shape.size(); ++i) {
      text.append(i == 0 ? "" : ",").append(std::to_string(tensor->shape[i]));
    }
    text.append(R"(],"data_offsets":[)").append(std::to_string(at)).append(",");
    at += tensor->bytes.size();
    text.append(std::to_string(at)).append("]}");
  }
  text += '}';
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  if (text.size() > kMostHeaderBytes) {
    fail(ErrorCode::invalid_argument, "safetensors: the names and shapes take ", text.size(),
         " bytes; at most ", kMostHeaderBytes, " are allowed");
  }
  return text;
}

// Every byte of the data belongs to one tensor.
void check_place(const HeaderTensor& tensor, Bytes at, std::size_t size, std::string_view what) {
  const auto refuse = [&](const auto&... why) {
    fail(ErrorCode::invalid_argument, what, ": tensor ", shown_name(tensor.view.name), ": ",
         why...);
  };
  if (tensor.begin != at) {
    refuse("its data begin at byte ", tensor.begin, ", those before it end at ", at);
  }
  if (tensor.end < tensor.begin || static_cast<std::size_t>(tensor.end) > size) {
    refuse("its data are from byte ", tensor.begin, " to ", tensor.end, ", and the file has ", size,
           " of them");
  }
  const Bytes bytes = tensor.end - tensor.begin;
  if (tensor_bytes(tensor.view.type, tensor.view.shape) != bytes) {
    refuse("it has ", bytes, " bytes, and its shape and type make another number of them");
  }
}

std::size_t header_length(std::span<const std::byte> length_bytes, std::size_t size,
                          std::string_view what) {
  std::uint64_t length = 0;
  std::memcpy(&length, length_bytes.data(), kLengthBytes);
  const std::size_t rest = size - kLengthBytes;
  if (length > kMostHeaderBytes || length > rest) {
    fail(ErrorCode::invalid_argument, what, ": the header should have ", length, " bytes; at most ",
         std::min(kMostHeaderBytes, rest), " can be");
  }
  return static_cast<std::size_t>(length);
}

void check_size(std::size_t size, std::string_view what) {
  if (size >= kLengthBytes) return;
  fail(ErrorCode::invalid_argument, what, ": ", size,
       " bytes are no safetensors file; the length of its header alone has ", kLengthBytes);
}

// Hands each tensor to `give`, in the order of their bytes, with where these begin in the data.
template <class Give>
Safetensors read_header(std::string_view text, std::size_t size, std::string_view what,
                        const Give& give) {
  TensorHeader header = parse_tensor_header(text, what);
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const HeaderTensor& a, const HeaderTensor& b) {
              return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
            });
  Safetensors read{{}, std::move(header.notes)};
  read.tensors.reserve(header.tensors.size());
  Bytes at = 0;
  for (HeaderTensor& tensor : header.tensors) {
    check_place(tensor, at, size, what);
    give(tensor.view, static_cast<std::size_t>(at), static_cast<std::size_t>(tensor.end - at));
    at = tensor.end;
    read.tensors.push_back(std::move(tensor.view));
  }
  if (static_cast<std::size_t>(at) != size) {
    fail(ErrorCode::invalid_argument, what, ": the tensors have ", at, " bytes of data, the file ",
         size);
  }
  return read;
}

}  // namespace

const TensorView& find_tensor(std::span<const TensorView> tensors, std::string_view name) {
  for (const TensorView& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  fail(ErrorCode::invalid_argument, "there is no tensor ", shown_name(name), " among the ",
       tensors.size(), " given");
}

void check_tensor(const TensorView& tensor, const TensorView& wanted) {
  const Bytes bytes = tensor_bytes(tensor.type, tensor.shape).value_or(0);
  const Bytes wanted_bytes = tensor_bytes(wanted.type, wanted.shape).value_or(0);
  if (tensor.type == wanted.type && bytes == wanted_bytes) return;
  const TensorTypeRow& row = tensor_type_row(tensor.type);
  const TensorTypeRow& wanted_row = tensor_type_row(wanted.type);
  fail(ErrorCode::invalid_argument, "tensor ", shown_name(tensor.name), " has ", bytes / row.bytes,
       " numbers of type ", row.word, "; it must have ", wanted_bytes / wanted_row.bytes,
       " of type ", wanted_row.word);
}

template <class Number>
void copy_tensor(const TensorView& tensor, std::span<Number> to) {
  const auto count = static_cast<std::int64_t>(to.size());
  check_tensor(tensor, {"", tensor_type<Number>(), {count}, {}, {}});
  if (to.empty()) return;
  if (tensor.read) {
    tensor.read(std::as_writable_bytes(to));
  } else {
    std::memcpy(to.data(), tensor.bytes.data(), to.size_bytes());
  }
}
template void copy_tensor(const TensorView&, std::span<float>);
template void copy_tensor(const TensorView&, std::span<double>);
template void copy_tensor(const TensorView&, std::span<std::int64_t>);
template void copy_tensor(const TensorView&, std::span<std::int32_t>);
template void copy_tensor(const TensorView&, std::span<std::uint8_t>);

void write_safetensors(std::span<const TensorView> tensors, const TensorNotes& notes,
                       const std::function<void(std::span<const std::byte>)>& sink) {
  const std::vector<const TensorView*> order = in_order(tensors);
  const std::string header = header_of(order, notes);
  const std::uint64_t length = header.size();
  sink(std::as_bytes(std::span(&length, 1)));
  sink(bytes_of(header));
  for (const TensorView* tensor : order) sink(tensor->bytes);
}

Safetensors read_safetensors(std::span<const std::byte> file, std::string_view what) {
  check_size(file.size(), what);
  const std::size_t length = header_length(file.first(kLengthBytes), file.size(), what);
  const auto* const text = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
  const std::span<const std::byte> data = file.subspan(kLengthBytes + length);
  return read_header({text, length}, data.size(), what,
                     [&](TensorView& tensor, std::size_t at, std::size_t size) {
                       tensor.bytes = data.subspan(at, size);
                     });
}

Safetensors open_safetensors(
    std::size_t size, const std::function<void(std::size_t from, std::span<std::byte> to)>& read,
    std::string_view what) {
  check_size(size, what);
  std::array<std::byte, kLengthBytes> first{};
  read(0, first);
  std::string text(header_length(first, size, what), ' ');
  read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  const std::size_t begin = kLengthBytes + text.size();
  return read_header(
      text, size - begin, what, [&](TensorView& tensor, std::size_t at, std::size_t) {
        tensor.read = [read, from = begin + at](std::span<std::byte> to) { read(from, to); };
      });
}

}  // namespace ebb
