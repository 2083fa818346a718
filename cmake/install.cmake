# What `make install` and the Debian package put where: the programs, libtrainyard, its header, and what pkg-config and
# CMake's find_package(trainyard) read.
# Not a folder of the architecture: what reads the files finds them from where they are.
set(CMAKE_INSTALL_LIBDIR lib)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(component COMPONENT trainyard)
install(TARGETS trainyard trainyard-agent trainyard-runtime trainyard-operator trainyard-operator-cpprestsdk
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} ${component})
if(TRAINYARD_WITH_TORCH)
  install(TARGETS trainyard-runtime-torch RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} ${component})
endif()
install(TARGETS trainyard_shared EXPORT trainyard
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${component} NAMELINK_COMPONENT trainyard
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES runtime/client/trainyard.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${component})

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/trainyard)
install(EXPORT trainyard NAMESPACE trainyard:: FILE trainyardConfig.cmake DESTINATION ${package_folder} ${component})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/trainyardConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/trainyardConfigVersion.cmake DESTINATION ${package_folder} ${component})

# Relative to its own place, so that the tree may be moved.
configure_file(cmake/trainyard.pc.in trainyard.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/trainyard.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig ${component})

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL trainyard)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_TRAINYARD_PACKAGE_NAME trainyard)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_PACKAGE_CONTACT "Trainyard <trainyard@trainyard.dev>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Distributed training with parameter servers or an all-reduce ring")
set(CPACK_STRIP_FILES ON)
include(CPack)
