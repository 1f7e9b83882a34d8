# SPDX-License-Identifier: Apache-2.0
# Installs the build tree BUILD into a fresh prefix, then configures, builds and runs this folder's project against it.
file(REMOVE_RECURSE "${WORK}")
set(prefix "${WORK}/prefix")
foreach(step IN ITEMS
    "${CMAKE_COMMAND};--install;${BUILD};--prefix;${prefix}"
    "${CMAKE_COMMAND};-S;${CMAKE_CURRENT_LIST_DIR};-B;${WORK}/build;-G;${GENERATOR};-DCMAKE_BUILD_TYPE=${CONFIG};-DCMAKE_CXX_COMPILER=${COMPILER};-DCMAKE_CXX_FLAGS=${FLAGS};-DCMAKE_PREFIX_PATH=${prefix}"
    "${CMAKE_COMMAND};--build;${WORK}/build"
    "${WORK}/build/consumer")
  execute_process(COMMAND ${step} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
