// SPDX-License-Identifier: Apache-2.0
// The makers that the table of codecs names, one file each.
#pragma once

#include "ebb/codec/codec.h"

namespace ebb {

std::unique_ptr<Codec> make_raw(Element element, std::string_view parameter);
std::unique_ptr<Codec> make_bf16(Element element, std::string_view parameter);
std::unique_ptr<Codec> make_fp16(Element element, std::string_view parameter);
std::unique_ptr<Codec> make_int8(Element element, std::string_view parameter);
std::unique_ptr<Codec> make_bits(Element element, std::string_view parameter);
std::unique_ptr<Codec> make_events(Element element, std::string_view parameter);
std::unique_ptr<Codec> make_pool(Element element, std::string_view parameter);
std::unique_ptr<Codec> make_zstd(Element element, std::string_view parameter);
std::unique_ptr<Codec> make_lz4(Element element, std::string_view parameter);

}  // namespace ebb
