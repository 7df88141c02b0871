"""The few protocols a broker fulfils, and one folder for each broker."""
