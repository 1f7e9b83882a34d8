// SPDX-License-Identifier: Apache-2.0
// Codecs over memory given by address.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ebb/codec/codec.h"
#include "ebb/core/error.h"
#include "python/core/topics.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace ebb::python {
namespace {

Element element_of(const std::string& word) {
  if (word == "f32") return Element::f32;
  if (word == "f64") return Element::f64;
  if (word == "byte") return Element::byte;
  fail(ErrorCode::invalid_argument, "Codec: the element is '", word,
       "'; it must be f32, f64 or byte");
}

// Safe to use from several threads, as a Codec is.
class AddressedCodec {
 public:
  AddressedCodec(const std::string& words, const std::string& element)
      : codec_(make_codec(words, element_of(element))) {}

  Bytes encoded_bytes(Bytes raw) const { return codec_->encoded_bytes(raw); }

  // False where the codec does not take a value of the field.
  bool encode(std::uintptr_t from, Bytes raw, std::uintptr_t to, Bytes room) const {
    const std::span<std::byte> target = span(to, room);
    const std::span<const std::byte> field = span(from, raw);
    if (room < codec_->encoded_bytes(raw)) {
      fail(ErrorCode::invalid_argument, "Codec.encode: ", room, " bytes for ",
           codec_->encoded_bytes(raw));
    }
    try {
      codec_->encode(field, target);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_argument) throw;
      return false;
    }
    return true;
  }

  void decode(std::uintptr_t from, Bytes encoded, std::uintptr_t to, Bytes raw) const {
    codec_->decode(span(from, encoded), span(to, raw));
  }

 private:
  static std::span<std::byte> span(std::uintptr_t address, Bytes bytes) {
    if (bytes < 0 || (address == 0 && bytes > 0)) {
      fail(ErrorCode::invalid_argument, "Codec: ", bytes, " bytes at address ", address,
           "; a field has an address and 0 bytes or more");
    }
    return {reinterpret_cast<std::byte*>(address), static_cast<std::size_t>(bytes)};
  }

  std::unique_ptr<Codec> codec_;
};

}  // namespace

void bind_codecs(nb::module_& module) {
  nb::class_<CodecRow>(module, "CodecRow")
      .def_ro("name", &CodecRow::name)
      .def_ro("what", &CodecRow::what)
      .def_ro("exact", &CodecRow::exact)
      .def_ro("fixed", &CodecRow::fixed)
      .def_ro("parameter", &CodecRow::parameter);
  module.def("codecs", [] {
    const auto rows = codecs();
    return std::vector<CodecRow>(rows.begin(), rows.end());
  });
  nb::class_<AddressedCodec>(
      module, "Codec",
      "Fields of one element type (f32, f64, byte), encoded and decoded. Memory is an address and "
      "a "
      "size; the caller keeps it alive. `encode` is False where the codec does not take a value.")
      .def(nb::init<const std::string&, const std::string&>(), "words"_a, "element"_a)
      .def("encoded_bytes", &AddressedCodec::encoded_bytes, "raw"_a)
      .def("encode", &AddressedCodec::encode, "source"_a, "raw"_a, "target"_a, "room"_a,
           nb::call_guard<nb::gil_scoped_release>())
      .def("decode", &AddressedCodec::decode, "source"_a, "encoded"_a, "target"_a, "raw"_a,
           nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace ebb::python
