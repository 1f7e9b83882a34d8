# SPDX-License-Identifier: Apache-2.0
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/ebb")
install(TARGETS ebb ebb_data ebb_train EXPORT ebbTargets FILE_SET HEADERS FILE_SET moved FILE_SET torch)
install(EXPORT ebbTargets NAMESPACE ebb:: DESTINATION "${package_dir}")
if(EBB_CLI)
  install(TARGETS ebb_cli)
  # Manual pages and completion are made from what the program says, so not when building for another machine.
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(Python3_Interpreter_FOUND AND NOT CMAKE_CROSSCOMPILING)
    set(pages "${PROJECT_BINARY_DIR}/pages")
    add_custom_command(
      OUTPUT "${pages}/stamp"
      COMMAND Python3::Interpreter "${PROJECT_SOURCE_DIR}/cmake/help_pages.py" $<TARGET_FILE:ebb_cli> ${PROJECT_VERSION} "${pages}"
      COMMAND "${CMAKE_COMMAND}" -E touch "${pages}/stamp"
      DEPENDS ebb_cli "${PROJECT_SOURCE_DIR}/cmake/help_pages.py" VERBATIM)
    add_custom_target(ebb_pages ALL DEPENDS "${pages}/stamp")
    install(DIRECTORY "${pages}/man1" DESTINATION "${CMAKE_INSTALL_MANDIR}")
    install(FILES "${pages}/completion/ebb" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
  endif()
endif()
# An sdist has no docs.
install(FILES LICENSE NOTICE docs/dependencies.md DESTINATION "${CMAKE_INSTALL_DOCDIR}" OPTIONAL)

configure_package_config_file(cmake/ebbConfig.cmake.in "${PROJECT_BINARY_DIR}/ebbConfig.cmake"
                              INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/ebbConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/ebbConfig.cmake" "${PROJECT_BINARY_DIR}/ebbConfigVersion.cmake"
        DESTINATION "${package_dir}")
