// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>

#include "tests/codec/fields_of_elements.h"

namespace ebb::test::half_test {
namespace {

// A two-byte format, by its definition.
struct Format {
  const char* name;
  int mantissa, bias;
};
constexpr Format kBf16{"bf16", 7, 127};
constexpr Format kFp16{"fp16", 10, 15};

int exponents(const Format& format) { return 2 * format.bias + 1; }

double value_of(const Format& format, unsigned half) {
  const int exponent = static_cast<int>(half >> format.mantissa) & exponents(format);
  const auto fraction = static_cast<double>(half & ((1U << format.mantissa) - 1));
  const double whole = std::ldexp(1.0, format.mantissa);
  double size = 0;
  if (exponent == exponents(format)) {
    size = fraction == 0 ? HUGE_VAL : NAN;
  } else if (exponent == 0) {
    size = std::ldexp(fraction / whole, 1 - format.bias);
  } else {
    size = std::ldexp(1 + fraction / whole, exponent - format.bias);
  }
  return (half & 0x8000) != 0 ? -size : size;
}

// The nearest number of the format, ties to even, by double arithmetic.
double nearest(const Format& format, double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), 1 - format.bias) - format.mantissa;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
  const double beyond = std::ldexp(1.0, format.bias + 1);
  return std::abs(rounded) >= beyond ? std::copysign(HUGE_VAL, value) : rounded;
}

std::vector<std::uint16_t> halves_of(const Format& format, const std::vector<float>& values) {
  return values_of<std::uint16_t>(
      encoded(*make_codec(format.name, Element::f32), bytes_of(values)));
}

template <class T>
std::vector<T> widened(const Format& format) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  const Field field =
      decoded(*make_codec(format.name, kElement<T>), bytes_of(halves), halves.size() * sizeof(T));
  return values_of<T>(field);
}

template <class T>
void expect_all_halves(const Format& format) {
  const std::vector<T> wide = widened<T>(format);
  const auto back =
      values_of<std::uint16_t>(encoded(*make_codec(format.name, kElement<T>), bytes_of(wide)));
  for (unsigned half = 0; half < 65536; ++half) {
    const double value = value_of(format, half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(wide[half])) << format.name << " " << half;
      EXPECT_TRUE(std::isnan(value_of(format, back[half]))) << format.name << " " << half;
      EXPECT_EQ(back[half] & 0x8000U, half & 0x8000U);
    } else {
      EXPECT_EQ(static_cast<double>(wide[half]), value) << format.name << " " << half;
      EXPECT_EQ(std::signbit(wide[half]), half >= 0x8000) << format.name << " " << half;
      EXPECT_EQ(back[half], half) << format.name;
    }
  }
}

void expect_nearest(const Format& format, const std::vector<float>& values) {
  const auto halves = halves_of(format, values);
  ASSERT_EQ(halves.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double got = value_of(format, halves[i]);
    const double wanted = nearest(format, static_cast<double>(values[i]));
    const bool same = std::isnan(wanted) ? std::isnan(got) : got == wanted;
    ASSERT_TRUE(same && std::signbit(got) == std::signbit(values[i]))
        << format.name << " of " << std::hexfloat << values[i] << " is " << got << " instead of "
        << wanted;
  }
}

TEST(Half, EveryHalfComesBack) {
  for (const Format& format : {kBf16, kFp16}) {
    expect_all_halves<float>(format);
    expect_all_halves<double>(format);
  }
}

// Where rounding turns: each half, the middle to the next one, and the floats beside both.
TEST(Half, RoundsToTheNearestAndTiesToEven) {
  for (const Format& format : {kBf16, kFp16}) {
    std::vector<float> values;
    for (unsigned half = 0; half < 65536; ++half) {
      if ((half & 0x7FFFU) >> format.mantissa == static_cast<unsigned>(exponents(format))) continue;
      const double step = nearest(format, value_of(format, half & 0x7FFFU));
      const unsigned next = half + 1;
      const double after =
          (next & 0x7FFFU) >> format.mantissa == static_cast<unsigned>(exponents(format))
              ? std::copysign(std::ldexp(1.0, format.bias + 1), 1.0)
              : value_of(format, next & 0x7FFFU);
      const double middle = (step + after) / 2;
      for (const double size : {step, middle}) {
        const auto value =
            std::copysign(static_cast<float>(size), (half & 0x8000) != 0 ? -1.0F : 1.0F);
        values.insert(values.end(),
                      {value, std::nextafter(value, HUGE_VALF), std::nextafter(value, -HUGE_VALF)});
      }
    }
    expect_nearest(format, values);
  }
}

TEST(Half, RoundsAnyBits) {
  std::mt19937_64 random(1);
  std::vector<float> values(300'000);
  for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  expect_nearest(kBf16, values);
  expect_nearest(kFp16, values);
}

TEST(Half, DoublesAreRoundedToFloatFirst) {
  std::vector<double> values = numbers<double>(10'001, 2);
  for (const double odd : odd_ones<double>(12, 0)) values.push_back(odd);
  const std::vector<float> floats(values.begin(), values.end());
  for (const Format& format : {kBf16, kFp16}) {
    EXPECT_EQ(encoded(*make_codec(format.name, Element::f64), bytes_of(values)),
              encoded(*make_codec(format.name, Element::f32), bytes_of(floats)));
  }
}

#ifdef __ARM_FP16_FORMAT_IEEE
TEST(Half, AgreesWithTheMachine) {
  std::mt19937_64 random(3);
  std::vector<float> values(300'000);
  for (float& value : values) {
    value = std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0xC7FFFFFF);
  }
  const auto halves = halves_of(kFp16, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(halves[i], std::bit_cast<std::uint16_t>(static_cast<__fp16>(values[i]))) << values[i];
  }
}
#endif

}  // namespace
}  // namespace ebb::test::half_test
