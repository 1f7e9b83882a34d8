# SPDX-License-Identifier: Apache-2.0
# Writes the text of FILES (joined by |) into the source OUTPUT, as the table NAME that HEADER declares. With STEMS their names lose the
# ending.
string(REPLACE "|" ";" FILES "${FILES}")
list(LENGTH FILES count)
set(rows "")
foreach(file IN LISTS FILES)
  if(STEMS)
    cmake_path(GET file STEM name)
  else()
    cmake_path(GET file FILENAME name)
  endif()
  file(READ "${file}" text)
  # A compiler need not take longer literals than this in one piece.
  string(LENGTH "${text}" length)
  set(literal "")
  set(at 0)
  while(at LESS length OR at EQUAL 0)
    string(SUBSTRING "${text}" ${at} 8000 piece)
    string(APPEND literal "R\"file(${piece})file\" ")
    math(EXPR at "${at} + 8000")
  endwhile()
  # A compiler need not count as many characters in a constant as a file may have.
  string(APPEND rows "    {\"${name}\", {${literal}, ${length}}},\n")
endforeach()
file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[
#include "@HEADER@"

#include <array>

namespace ebb {
namespace {

constexpr std::array<EmbeddedFile, @count@> @NAME@Array{{
@rows@}};

}  // namespace

constinit const std::span<const EmbeddedFile> @NAME@ = @NAME@Array;

}  // namespace ebb
]])
