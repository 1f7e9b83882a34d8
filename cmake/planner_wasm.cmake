# SPDX-License-Identifier: Apache-2.0
# ebb_planner_wasm(<em++> <output>)
# The planner for pages: the rooms core and plan, and what of the room view turns a plan into data, as WebAssembly that asks its host
# for a clock alone. It is compressed and written in base64. Files of a room are compiled together.
function(ebb_planner_wasm compiler output)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/planner_wasm")
  get_target_property(sources ebb SOURCES)
  list(TRANSFORM sources PREPEND "ebb/" REGEX "^[a-z]+/")
  set(core_files ${sources})
  list(FILTER core_files INCLUDE REGEX "^ebb/core/.*[.]cpp$")
  set(plan_files ${sources})
  list(FILTER plan_files INCLUDE REGEX "^ebb/plan/.*[.]cpp$|/presets[.]cpp$")
  set(view_files curve explorer explorer_exports film plan_data)
  list(TRANSFORM view_files REPLACE "(.+)" "ebb/view/\\1.cpp")

  # After the compiler's own: they may lie among this machine's headers.
  get_target_property(json nlohmann_json::nlohmann_json INTERFACE_INCLUDE_DIRECTORIES)
  list(TRANSFORM json PREPEND "-idirafter")
  set(flags -std=c++20 -O2 -DNDEBUG -fwasm-exceptions "-I${PROJECT_SOURCE_DIR}" ${json} "-DEBB_VERSION=\"${PROJECT_VERSION}\"")
  set(objects "")
  foreach(room core plan view)
    list(TRANSFORM ${room}_files REPLACE "(.+)" "#include \"\\1\"")
    list(JOIN ${room}_files "\n" text)
    file(CONFIGURE OUTPUT "${folder}/${room}.cpp" CONTENT "${text}\n" @ONLY)
    add_custom_command(
      OUTPUT "${folder}/${room}.o"
      COMMAND "${compiler}" ${flags} -MD -MF "${folder}/${room}.d" -c "${folder}/${room}.cpp" -o "${folder}/${room}.o"
      DEPENDS "${folder}/${room}.cpp"
      DEPFILE "${folder}/${room}.d"
      COMMENT "Compiling ${room} to WebAssembly"
      VERBATIM)
    list(APPEND objects "${folder}/${room}.o")
  endforeach()
  add_custom_command(
    OUTPUT "${output}"
    COMMAND "${compiler}" -O2 -fwasm-exceptions --no-entry -sSTANDALONE_WASM -sALLOW_MEMORY_GROWTH -sFILESYSTEM=0
            ${objects} -o "${folder}/planner.wasm"
    COMMAND sh -c "gzip -9nc \"$1\" | base64 -w 0 >\"$2\"" sh "${folder}/planner.wasm" "${output}"
    DEPENDS ${objects}
    COMMENT "Linking the planner as WebAssembly"
    VERBATIM)
endfunction()
