"""Where does each rank sit."""
