# SPDX-License-Identifier: Apache-2.0
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/ebb")
install(TARGETS ebb ebb_data ebb_train EXPORT ebbTargets FILE_SET HEADERS FILE_SET moved FILE_SET torch)
install(EXPORT ebbTargets NAMESPACE ebb:: DESTINATION "${package_dir}")
if(EBB_CLI)
  install(TARGETS ebb_cli)
endif()

configure_package_config_file(cmake/ebbConfig.cmake.in "${PROJECT_BINARY_DIR}/ebbConfig.cmake"
                              INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/ebbConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/ebbConfig.cmake" "${PROJECT_BINARY_DIR}/ebbConfigVersion.cmake"
        DESTINATION "${package_dir}")
